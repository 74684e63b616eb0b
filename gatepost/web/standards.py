"""Introspection, revocation and userinfo: RFC 7662, RFC 7009, OIDC Core 1.0 section 5.3."""

from collections.abc import Callable
from typing import Any

from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Origin
from gatepost.oauth import client_authentication, introspection, revocation
from gatepost.oauth.authorize.flow import Rejected, rejected
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials
from gatepost.store.transaction import SHORT, Tx
from gatepost.web import bearer
from gatepost.web.context import Surface
from gatepost.web.requests import Request, form
from gatepost.web.responses import NO_STORE, Header, Reply, json, oauth_error
from gatepost.web.tokens import form_of_client, note_failed_authentication, refuse_client


async def introspect(surface: Surface, request: Request) -> Reply:
    """Reading is enough where a secret is shown. Other proofs are used up, and failures are counted."""
    read = _read(surface, request)
    if isinstance(read, Reply):
        return read
    presented, token = read

    def look(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | None:
        known = (
            client_authentication.authenticate_by_secret(tx, surface.service, presented)
            if isinstance(token, str)
            else None
        )
        if known is None or not known.is_valid(tx.at) or isinstance(token, Refusal):
            return None
        return known, introspection.introspect(tx, surface.service, known, token)

    seen = await surface.store.read(look, SHORT)
    if seen is not None:
        known, told = seen
        surface.note_use(known.account.id, known.by)
        return json(200, told, NO_STORE)
    found = await _as_client(
        surface,
        request,
        presented,
        token,
        lambda tx, known, text: introspection.introspect(tx, surface.service, known, text),
    )
    return found if isinstance(found, Reply) else json(200, found, NO_STORE)


async def revoke(surface: Surface, request: Request) -> Reply:
    sent = form(request)
    token = "" if isinstance(sent, Refusal) else sent.get("token", [""])[0]
    if revocation.is_by_login_application(token):
        ended = await surface.run(
            lambda tx: revocation.by_login_application(tx, surface.service, token, request.id, request.source)
        )
        return oauth_error(ended) if isinstance(ended, Refusal) else json(200, {}, NO_STORE)
    read = _read(surface, request)
    if isinstance(read, Reply):
        return read

    def give_back(tx: Tx, known: AuthenticatedClient, text: str) -> dict[str, Any]:
        origin = Origin(known.client.id, request.id, request.source)
        revocation.by_client(tx, surface.service, known, text, origin)
        return {}

    found = await _as_client(surface, request, *read, give_back)
    return found if isinstance(found, Reply) else json(200, found, NO_STORE)


def _read(surface: Surface, request: Request) -> tuple[ClientCredentials, str | Refusal] | Reply:
    """Who asks, and about which token."""
    found = form_of_client(surface, request)
    if isinstance(found, Reply):
        return found
    presented, sent = found
    if isinstance(sent, Refusal):
        return presented, sent
    missing = Refusal("invalid_request", "token: missing", "token")
    return presented, sent["token"][0] if "token" in sent else missing


async def _as_client(
    surface: Surface, request: Request, presented: ClientCredentials, token: str | Refusal,
    act: Callable[[Tx, AuthenticatedClient, str], dict[str, Any]],
) -> dict[str, Any] | Reply:  # fmt: skip
    at = request.path.rpartition("/")[2]

    def unit(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | Rejected:
        origin = Origin(presented.client, request.id, request.source)
        known = client_authentication.authenticate(tx, surface.service, presented, origin)
        if isinstance(known, Refusal):
            return Rejected(known, None, authenticated=False)
        if at == "introspect" and known.client.public:
            return rejected(
                tx, known, Refusal("invalid_client", "introspection needs a client that authenticates"), origin, at
            )
        return rejected(tx, known, token, origin, at) if isinstance(token, Refusal) else (known, act(tx, known, token))

    outcome = await surface.run(unit)
    if isinstance(outcome, Rejected):
        if not outcome.authenticated:
            note_failed_authentication(request, outcome.refusal)
        event: tuple[Header, ...] = (("gatepost-event", outcome.event),) if outcome.event else ()
        return refuse_client(outcome.refusal, *event)
    known, told = outcome
    surface.note_use(known.account.id, known.by)
    return told


async def userinfo(surface: Surface, request: Request) -> Reply:
    sent = bearer.shown(surface, request)
    if sent is None:
        return bearer.unauthenticated(surface, request, "openid")

    def unit(tx: Tx) -> dict[str, Any] | Refusal:
        return introspection.userinfo(tx, surface.service, sent)

    outcome = await (surface.store.read(unit, SHORT) if sent.proof is None else surface.store.run(unit))
    if isinstance(outcome, Refusal):
        return oauth_error(outcome, bearer.challenged(surface, request, outcome, "openid"))
    return json(200, outcome, NO_STORE)
