"""Client credentials: a client obtains a token for itself. RFC 6749, section 4.4."""

from typing import Any

from gatepost.oauth.client_authentication import ClientCredentials
from gatepost.oauth.grants.grant_type import GrantType
from gatepost.oauth.token_rules import SHARED, Draft, TokenRequest, client_is_confidential
from gatepost.store.transaction import APPEND_ONLY, NO_HINTS, Hints

RULES = (client_is_confidential, *SHARED)


def subject(draft: Draft) -> str:
    """The `sub` of the token is the client. RFC 9068, section 2.2."""
    return draft.client.id


def claims(draft: Draft) -> dict[str, Any]:
    """The claims that the client is configured with; for a shared resource only those that the operator configured."""
    return draft.client.claims if draft.fixed_claims is None else draft.fixed_claims


def hints(_credentials: ClientCredentials, request: TokenRequest) -> Hints:
    """A DPoP proof is marked as used; without one the unit only appends its ledger entry."""
    return APPEND_ONLY if request.proof is None else NO_HINTS


GRANT = GrantType(RULES, explainable=True, subject=subject, claims=claims, hints=hints)
