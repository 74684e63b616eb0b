"""What a grant type does at the token endpoint: the type of the entries of GRANTS."""

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Origin
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import Draft, GrantContext, Rule, TokenRequest
from gatepost.store.transaction import NO_HINTS, Hints, Tx


class TokenExtras(msgspec.Struct, frozen=True):
    """What a grant adds to an access token."""

    members: Mapping[str, str] = MappingProxyType({})  # of the response
    entry_data: Mapping[str, Any] = MappingProxyType({})  # of the ledger entry
    id_token_claims: dict[str, Any] | None = None


NO_EXTRAS = TokenExtras()


class LoadedGrant(msgspec.Struct, frozen=True):
    """The context of a request. `complete` writes the grant's own changes once the rules allow the token."""

    context: GrantContext
    complete: Callable[[Draft], TokenExtras] = lambda _draft: NO_EXTRAS


Load = Callable[[Tx, Service, AuthenticatedClient, TokenRequest, Origin], LoadedGrant | Refusal]


def _context(draft: Draft) -> GrantContext:
    if draft.context is None:
        raise TypeError(f"{draft.request.grant_type} needs a context")
    return draft.context


class GrantType(NamedTuple):
    """The parameters of a grant type, its rules, what it loads and writes, the claims it sets, and its store hints."""

    rules: tuple[Rule, ...]
    # Checks what the client presents: a code, a token, an assertion. None: the decision depends on definitions alone.
    # Then it is cached, and the ledger entry is all that a request writes.
    load: Load | None = None
    parameters: tuple[str, ...] = ()
    resource_parameters: tuple[str, ...] = ("resource",)
    explainable: bool = False  # whether `Prefer: explain` is honored
    subject: Callable[[Draft], str] = lambda draft: _context(draft).subject
    claims: Callable[[Draft], dict[str, Any]] = lambda draft: _context(draft).claims
    hints: Callable[[ClientCredentials, TokenRequest], Hints] = lambda _credentials, _request: NO_HINTS
    # The key under which the rules' decision is cached although the grant loads something; None: it is not cached.
    cache_key: Callable[[Draft], Hashable | None] = lambda _draft: None
