"""POST /oauth/tokens: parse the request, run the token endpoint, sign the tokens. RFC 6749, sections 2.3 and 5."""

import asyncio
import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import unquote_plus

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.logging import count_token_request, log
from gatepost.core.metrics import UNKNOWN_CLIENTS
from gatepost.core.secrets import digest
from gatepost.oauth import id_tokens, scopes, token_endpoint
from gatepost.oauth.client_authentication import UNKNOWN, ClientCredentials, RefusedRequest, client_named_in
from gatepost.oauth.grants import GRANTS
from gatepost.oauth.quotas import Quotas, QuotaUse
from gatepost.oauth.token_endpoint import Explained, Issued
from gatepost.oauth.token_rules import Token, TokenRequest
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.requests import FORM, Request, form, parameters_sent_once, preferences
from gatepost.web.responses import NO_STORE, Header, LogFields, Reply, json, oauth_error

# Seconds until a request beyond a quota is refused. A client that repeats it at once, whatever Retry-After says, would
# otherwise keep the process as busy as with the requests that the quota refuses.
QUOTA_DELAY = 0.5
_CREDENTIALS = ("client_id", "client_secret", "client_assertion", "client_assertion_type")
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_BASIC: Header = ("www-authenticate", 'Basic realm="gatepost"')
# In the bodies of requests that a client may repeat byte by byte. Parsing them is cached.
_REPEATED = re.compile("|".join(f"grant_type={name}" for name, grant in GRANTS.items() if grant.load is None).encode())
_MAX_BASIC = 512  # characters of a header whose credentials are cached
_FAILED = Refusal("invalid_client", "client authentication failed")
_UNKNOWN = Quotas()
_encode = msgspec.json.Encoder().encode


async def answer(context: Context, request: Request) -> Reply:
    """Answer a token request."""
    key = _cache_key(context, request) if _REPEATED.search(request.body) else None
    parsed = context.parsed_requests.get(key) if key else None
    if parsed is None:
        parsed = read_client_form(context, request, repeatable=("resource", "audience"))
        if isinstance(parsed, Reply):
            return parsed
        credentials, sent = parsed
        parsed = credentials, sent if isinstance(sent, Refusal) else _token_request(context, request, sent)
    credentials, token_request = parsed
    if isinstance(token_request, Refusal) and bearer.is_nonce_challenge(token_request):
        count_token_request(("", token_request.code))
        return oauth_error(token_request)
    known = context.known_clients.get((credentials.client, credentials.digest), _UNKNOWN)
    use = QuotaUse(context.quota_meter)
    if known.limits and credentials.digest and (beyond := use.begin(known, context.now())):
        count_token_request(("", beyond.code))
        await asyncio.sleep(QUOTA_DELAY)
        return oauth_error(beyond)
    outcome = None
    try:
        outcome = await context.run(
            lambda tx: token_endpoint.answer(
                tx, context.service, credentials, token_request, request.id, request.source, use
            ),
            token_endpoint.hints(context.service, credentials, token_request, known.account),
        )
    finally:
        use.end(context.now, issued=isinstance(outcome, Issued))
    if not isinstance(outcome, Explained) and outcome.quotas is not None and outcome.quotas != known:
        context.known_clients.add((credentials.client, credentials.digest), outcome.quotas)
    grant_type, cacheable = "", False
    if isinstance(token_request, TokenRequest) and token_request.grant_type in GRANTS:
        grant_type = token_request.grant_type
        cacheable = bool(credentials.digest) and GRANTS[grant_type].load is None and token_request.proof is None
    match outcome:
        case Issued():
            context.note_use(*outcome.used)
            if key and cacheable:
                context.parsed_requests.add(key, parsed)
            count_token_request((grant_type, "issued"))
            signed = outcome.sign(context.service.ring)
            members = outcome.members
            if outcome.id_token is not None:
                members = {**members, "id_token": id_tokens.sign(context.service.ring, outcome.id_token, signed)}
            return token_response(outcome.token, signed, outcome.event, members, grant_type)
        case Explained():
            count_token_request((grant_type, "explained"))
            applied = ("preference-applied", "explain")
            return json(200, outcome.body, NO_STORE, applied, ("gatepost-event", outcome.event))
        case RefusedRequest():
            count_token_request((grant_type, outcome.refusal.code))
            return refuse_client(request, outcome)


def _cache_key(context: Context, request: Request) -> bytes:
    """A keyed hash of everything in the request that parsing reads."""
    sent = request.headers
    fields = f"{sent.get('authorization')}\0{sent.get('content-type')}\0{sent.get('prefer')}\0{sent.get('dpop')}\0"
    return hashlib.blake2b(
        fields.encode("latin-1") + request.body, digest_size=16, key=context.service.keys.hash
    ).digest()


def read_client_form(
    context: Context, request: Request, *, repeatable: tuple[str, ...] = ()
) -> tuple[ClientCredentials, dict[str, list[str]] | Refusal] | Reply:  # fmt: skip
    """The credentials in a form, and its parameters or what is wrong with them. A reply if it has no credentials.

    An invalid form is refused only after its client has authenticated, so that the refusal is recorded.
    """
    parsed = form(request, repeatable=repeatable)
    if isinstance(parsed, dict):
        sent = parsed
    else:
        sent = parameters_sent_once(request.body, _CREDENTIALS) if request.media_type() == FORM else {}
    credentials = read_credentials(context, request, sent)
    if isinstance(credentials, Refusal):
        if isinstance(parsed, Refusal):
            return oauth_error(parsed)
        refusal = msgspec.structs.replace(credentials, rule=UNKNOWN)
        return refuse_client(request, RefusedRequest(refusal, authenticated=False))
    return credentials, parsed


def refuse_client(request: Request, refused: RefusedRequest) -> Reply:
    """The response to a client whose request is refused. A failed authentication is counted and logged.

    A failure of an unknown client belongs to no account, so no ledger records it.
    """
    refusal = refused.refusal
    if not refused.authenticated:
        if refusal.rule == UNKNOWN:
            UNKNOWN_CLIENTS.inc()
        log.warning("client authentication failed", client=refusal.rule, source=request.source, request=request.id)
    headers = [_BASIC] if refusal.status == 401 else []
    if refused.event:
        headers.append(("gatepost-event", refused.event))
    return oauth_error(refusal, *headers)


def token_response(
    token: Token, signed: bytes, event: str, members: Mapping[str, str] = MappingProxyType({}), grant_type: str = ""
) -> Reply:  # fmt: skip
    """The response with an access token, and the other `members` of the grant. RFC 6749, section 5.1."""
    body = {
        "access_token": signed.decode(),
        "token_type": token.kind,
        "expires_in": token.lifetime,
        "scope": token.scope,
        **members,
    }
    log_fields = LogFields(event, "", token.claims["account"], token.claims["client_id"], grant_type)
    headers = (NO_STORE, ("pragma", "no-cache"), ("gatepost-event", event))
    return Reply(200, _encode(body), headers, "application/json", log_fields)


def read_credentials(
    context: Context, request: Request, sent: Mapping[str, list[str]]
) -> ClientCredentials | Refusal:  # fmt: skip
    """The credentials of a client, which uses one method per request. RFC 6749, section 2.3."""
    service, authorization = context.service, request.headers.get("authorization")
    basic = _basic(context, authorization) if authorization is not None else None
    if isinstance(basic, Refusal):
        return basic
    if sum((basic is not None, "client_secret" in sent, "client_assertion" in sent)) > 1:
        return Refusal("invalid_request", "use only one method of client authentication")
    client_id = sent.get("client_id", [""])[0]
    if basic is not None:
        if client_id and client_id != basic.client:
            return Refusal("invalid_request", "client_id: differs from the Authorization header", "client_id")
        return basic
    if "client_assertion" in sent:
        if sent.get("client_assertion_type") != [ASSERTION_TYPE]:
            return Refusal("invalid_request", f"client_assertion_type: must be {ASSERTION_TYPE}")
        assertion = sent["client_assertion"][0]
        client = client_named_in(assertion)
        if client_id and client_id != client:
            return Refusal("invalid_request", "client_id: differs from the assertion's subject", "client_id")
        endpoint = f"{service.base_url}{request.path}"
        return ClientCredentials(client, "private_key_jwt", assertion=assertion, endpoint=endpoint)
    if "client_secret" in sent:
        return ClientCredentials(
            client_id, "client_secret_post", digest=digest(service.keys.hash, sent["client_secret"][0])
        )
    if client_id:
        return ClientCredentials(client_id, "none")
    return _FAILED


def _basic(context: Context, authorization: str) -> ClientCredentials | Refusal:
    """The credentials of HTTP Basic. Parsing is cached, because a client repeats the header; a long one is not ours."""
    key = context.service.keys.hash
    if len(authorization) > _MAX_BASIC:
        return _parse_basic(key, authorization)
    hashed = hashlib.blake2b(authorization.encode("latin-1"), digest_size=16, key=key).digest()
    known = context.credentials.get(hashed)
    if known is not None:
        return known
    parsed = _parse_basic(key, authorization)
    if isinstance(parsed, ClientCredentials):
        context.credentials.add(hashed, parsed)
    return parsed


def _parse_basic(key: bytes, authorization: str) -> ClientCredentials | Refusal:
    """RFC 6749, section 2.3.1: id and secret are form-encoded."""
    if authorization[:6].lower() != "basic ":
        return _FAILED
    try:
        client, colon, secret = b64decode(authorization[6:].strip(), validate=True).decode("utf-8").partition(":")
        if "%" in client or "+" in client:
            client = unquote_plus(client, errors="strict")
        if "%" in secret or "+" in secret:
            secret = unquote_plus(secret, errors="strict")
    except ValueError:
        return _FAILED
    return ClientCredentials(client, "client_secret_basic", digest=digest(key, secret)) if colon else _FAILED


def _token_request(context: Context, request: Request, sent: Mapping[str, list[str]]) -> TokenRequest | Refusal:
    if "grant_type" not in sent:
        return Refusal("invalid_request", "grant_type: missing", "grant_type")
    proof = bearer.proof(context, request)
    if isinstance(proof, Refusal):
        return proof
    grant = GRANTS.get(sent["grant_type"][0])
    resource_parameters = grant.resource_parameters if grant else ("resource",)
    if "audience" not in resource_parameters and len(sent.get("audience", ())) > 1:
        return Refusal("invalid_request", "audience: sent more than once", "audience")
    return TokenRequest(
        sent["grant_type"][0],
        tuple(scopes.split(sent["scope"][0])) if "scope" in sent else (),
        tuple(resource for name in resource_parameters for resource in sent.get(name, ())),
        explain="explain" in preferences(request.headers.get("prefer", "")),
        parameters=tuple((name, sent[name][0]) for name in grant.parameters if name in sent) if grant else (),
        proof=proof,
    )
