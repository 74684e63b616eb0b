"""POST /oauth/tokens: read what was shown and asked, have it answered, sign what was decided. RFC 6749, section 5."""

import hashlib
from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import unquote_plus

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.jose import b64
from gatepost.core.logging import count_token_request, log
from gatepost.core.metrics import UNKNOWN_CLIENTS
from gatepost.core.secrets import digest
from gatepost.oauth import scopes, token_endpoint, token_rules
from gatepost.oauth.client_authentication import UNKNOWN, Presented, client_named_in
from gatepost.oauth.client_grants import TOKEN_EXCHANGE
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.service import Service
from gatepost.oauth.token_endpoint import Explained, Identity, Issued, Refused
from gatepost.oauth.token_rules import Token
from gatepost.web import bearer
from gatepost.web.context import Surface
from gatepost.web.requests import Request, form, preferences
from gatepost.web.responses import NO_STORE, Header, Reply, Said, json, oauth_error

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_BASIC: Header = ("www-authenticate", 'Basic realm="gatepost"')
_ONCE = b"refresh_token="  # in a request that is not sent again
_encode = msgspec.json.Encoder().encode


async def answer(surface: Surface, request: Request) -> Reply:
    mark = None if _ONCE in request.body else _mark(surface, request)
    found = surface.remembered.get(mark) if mark else None
    if found is None:
        found = _read(surface, request)
        if isinstance(found, Reply):
            return found
    presented, asked = found
    if isinstance(asked, Refusal) and bearer.is_nonce_challenge(asked):
        count_token_request(("", asked.code))
        return oauth_error(asked)
    outcome = await surface.run(
        lambda tx: token_endpoint.answer(tx, surface.service, presented, asked, request.id, request.source),
        token_endpoint.hints(presented, asked),
    )
    way = asked.grant_type if isinstance(asked, token_rules.Request) and asked.grant_type in GRANTS else ""
    match outcome:
        case Issued():
            surface.note_use(*outcome.used)
            if (
                mark
                and isinstance(asked, token_rules.Request)
                and presented.digest
                and token_endpoint.only_appends(asked)
            ):
                surface.remember(mark, (presented, asked))
            count_token_request((way, "issued"))
            signed = surface.service.ring.sign(outcome.token.key, _encode(outcome.token.claims), "at+jwt")
            members = outcome.members
            if outcome.identity is not None:
                members = {**members, "id_token": id_token(surface, outcome.identity, signed)}
            return issued(outcome.token, signed, outcome.event, members, way)
        case Explained():
            count_token_request((way, "explained"))
            told = json(200, outcome.told, NO_STORE, ("preference-applied", "explain"))
            return told._replace(headers=(*told.headers, ("gatepost-event", outcome.event)))
        case Refused():
            if not outcome.authenticated:
                note_failed_authentication(request, outcome.refusal)
            count_token_request((way, outcome.refusal.code))
            return refuse_client(outcome.refusal, *([("gatepost-event", outcome.event)] if outcome.event else []))


def _mark(surface: Surface, request: Request) -> bytes:
    """Of what was sent, all that is looked at here. Machines ask for the same over and over, in the same bytes."""
    sent = request.headers
    named = f"{sent.get('authorization')}\0{sent.get('content-type')}\0{sent.get('prefer')}\0{sent.get('dpop')}\0"
    return hashlib.blake2b(
        named.encode("latin-1") + request.body, digest_size=16, key=surface.service.keys.hash
    ).digest()


def _read(surface: Surface, request: Request) -> tuple[Presented, token_rules.Request | Refusal] | Reply:
    """Who asks, and for what; or the answer to who does not even say."""
    found = form_of_client(surface, request, repeatable=("resource", "audience"))
    if isinstance(found, Reply):
        return found
    presented, sent = found
    return presented, sent if isinstance(sent, Refusal) else _asked(surface, request, sent)


def form_of_client(
    surface: Surface, request: Request, *, repeatable: tuple[str, ...] = ()
) -> tuple[Presented, dict[str, list[str]] | Refusal] | Reply:  # fmt: skip
    """Who sends a form, and its parameters or what is wrong with them; or the answer to who does not say who it is."""
    parsed = form(request, repeatable=repeatable)
    presented = credentials(surface.service, request, {} if isinstance(parsed, Refusal) else parsed)
    if isinstance(presented, Refusal):
        if isinstance(parsed, Refusal):
            return oauth_error(parsed)
        note_failed_authentication(request, msgspec.structs.replace(presented, rule=UNKNOWN))
        return refuse_client(presented)
    return presented, parsed


def note_failed_authentication(request: Request, refusal: Refusal) -> None:
    """A request of no known client belongs to no account and no ledger: it is counted and logged."""
    if refusal.rule == UNKNOWN:
        UNKNOWN_CLIENTS.inc()
    log.warning("client authentication failed", client=refusal.rule, source=request.source, request=request.id)


def issued(
    token: Token, signed: bytes, event: str, members: Mapping[str, str] = MappingProxyType({}), grant_type: str = ""
) -> Reply:  # fmt: skip
    body = {
        "access_token": signed.decode(),
        "token_type": token.kind,
        "expires_in": token.lifetime,
        "scope": token.scope,
        **members,
    }
    said = Said(event, "", token.claims["account"], token.claims["client_id"], grant_type)
    headers = (NO_STORE, ("pragma", "no-cache"), ("gatepost-event", event))
    return Reply(200, _encode(body), headers, "application/json", said)


def id_token(surface: Surface, identity: Identity, access_token: bytes) -> str:
    """With the hash of the access token it comes with: OIDC Core 1.0, section 3.1.3.6."""
    hashed = hashlib.sha512(access_token) if identity.key.alg == "EdDSA" else hashlib.sha256(access_token)
    half = hashed.digest()[: hashed.digest_size // 2]
    claims = identity.claims | {"at_hash": b64(half).decode()}
    return surface.service.ring.sign(identity.key, _encode(claims), "JWT").decode()


def refuse_client(refusal: Refusal, *headers: Header) -> Reply:
    return oauth_error(refusal, *((_BASIC,) if refusal.status == 401 else ()), *headers)


def credentials(service: Service, request: Request, sent: Mapping[str, list[str]]) -> Presented | Refusal:
    """How the client authenticates. RFC 6749, section 2.3: by one method, never two."""
    key, authorization = service.keys.hash, request.headers.get("authorization")
    basic = _basic(key, authorization) if authorization is not None else None
    if isinstance(basic, Refusal):
        return basic
    ways = [basic is not None, "client_secret" in sent, "client_assertion" in sent]
    if sum(ways) > 1:
        return Refusal("invalid_request", "authenticate by one method, not several")
    named = sent.get("client_id", [""])[0]
    if basic is not None:
        if named and named != basic.client:
            return Refusal("invalid_request", "client_id: differs from that of the Authorization header", "client_id")
        return basic
    if "client_assertion" in sent:
        if sent.get("client_assertion_type") != [ASSERTION_TYPE]:
            return Refusal("invalid_request", f"client_assertion_type: must be {ASSERTION_TYPE}")
        assertion = sent["client_assertion"][0]
        client = client_named_in(assertion)
        if named and named != client:
            return Refusal("invalid_request", "client_id: differs from the assertion's subject", "client_id")
        endpoint = f"{service.base_url}{request.path}"
        return Presented(client, "private_key_jwt", assertion=assertion, endpoint=endpoint)
    if "client_secret" in sent:
        return Presented(named, "client_secret_post", digest=digest(key, sent["client_secret"][0]))
    if named:
        return Presented(named, "none")
    return Refusal("invalid_client", "client authentication failed")


def _basic(key: bytes, authorization: str) -> Presented | Refusal:
    """RFC 6749, section 2.3.1: id and secret are form-encoded inside the Basic credentials."""
    kind, _, encoded = authorization.partition(" ")
    failed = Refusal("invalid_client", "client authentication failed")
    if kind.lower() != "basic":
        return failed
    try:
        client, colon, secret = b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
        if "%" in client or "+" in client:
            client = unquote_plus(client, errors="strict")
        if "%" in secret or "+" in secret:
            secret = unquote_plus(secret, errors="strict")
    except ValueError:
        return failed
    return Presented(client, "client_secret_basic", digest=digest(key, secret)) if colon else failed


def _asked(surface: Surface, request: Request, sent: Mapping[str, list[str]]) -> token_rules.Request | Refusal:
    grant_type = sent.get("grant_type")
    if grant_type is None:
        return Refusal("invalid_request", "grant_type: missing", "grant_type")
    proof = bearer.proof(surface, request)
    if isinstance(proof, Refusal):
        return proof
    resources = sent.get("resource", [])
    if "audience" in sent:
        if grant_type[0] == TOKEN_EXCHANGE:  # RFC 8693, section 2.1: here both name a resource
            resources = resources + sent["audience"]
        elif len(sent["audience"]) > 1:
            return Refusal("invalid_request", "audience: sent more than once", "audience")
    named = GRANTS[grant_type[0]].parameters if grant_type[0] in GRANTS else ()
    return token_rules.Request(
        grant_type[0],
        tuple(scopes.split(sent["scope"][0])) if "scope" in sent else (),
        tuple(resources),
        explain="explain" in preferences(request.headers.get("prefer", "")),
        sent=tuple((name, sent[name][0]) for name in named if name in sent),
        proof=proof,
    )
