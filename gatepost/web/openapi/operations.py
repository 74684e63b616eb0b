"""The six operations: what each takes, answers and refuses with, and the parameters and headers they share."""

from typing import NamedTuple

from gatepost.web import definitions, deliveries
from gatepost.web.openapi.deliveries import QUERY
from gatepost.web.openapi.parts import Json, identifier
from gatepost.web.requests import FORM
from gatepost.web.responses import VERSION


class Operation(NamedTuple):
    """One of the six: what it is, what it takes, what it answers, and the codes of errors.ERRORS it refuses with."""

    summary: str
    codes: tuple[str, ...]
    scope: str = ""  # of the bearer token; without one, the client authenticates
    description: str = ""
    takes: tuple[str, str] | None = None  # media type and the name of a schema
    answers: tuple[tuple[int, str, str], ...] = ()  # status, the name of a schema, in words
    parameters: tuple[str, ...] = ("Gatepost-Version", "DPoP")


_ANY = ("invalid_request", "unsupported_version", "too_many_requests", "temporarily_unavailable")
PROOF = ("invalid_dpop_proof", "use_dpop_nonce")  # of RFC 9449: where a token is shown they are 401
_BEARER = ("invalid_token", "insufficient_scope", *PROOF)
_BODY = ("request_timeout", "request_too_large", "unsupported_media_type")
_DEFINING = (*_ANY, *_BEARER, *_BODY, "limit_reached", "idempotency_key_reused")
_KEYED = ("Gatepost-Version", "DPoP", "Idempotency-Key")

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/oauth/clients"): Operation(
        "Define a client",
        (*_DEFINING, "invalid_client_metadata", "invalid_redirect_uri", "not_found"),
        definitions.CLIENTS.scope,
        "Without client_id it creates; with the id of a client of the account it changes what is sent.",
        ("application/json", "ClientDefinition"),
        ((201, "Client", "Created."), (200, "Client", "The client as it now is.")),
        _KEYED,
    ),
    ("POST", "/oauth/scopes"): Operation(
        "Define a scope",
        (*_DEFINING, "conflict"),
        definitions.SCOPES.scope,
        "The name identifies it. Another definition of a name that exists needs redefine.",
        ("application/json", "ScopeDefinition"),
        ((201, "Scope", "Created."), (200, "Scope", "The scope as it now is.")),
        _KEYED,
    ),
    ("POST", "/oauth/tokens"): Operation(
        "Obtain a token",
        (
            *_ANY, "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
            "invalid_target", *PROOF, "request_timeout", "request_too_large", "too_many_failures",
        ),
        "",
        "The client authenticates as it is registered: HTTP Basic, client_secret in the body, or an assertion; a "
        "public client names itself by client_id.",
        (FORM, "TokenRequest"),
        ((200, "Token", "Issued."),),
    ),
    ("POST", "/webhooks/endpoints"): Operation(
        "Define a webhook endpoint",
        (*_DEFINING, "not_found", "conflict"),
        definitions.ENDPOINTS.scope,
        "Without id it creates; with the id of an endpoint of the account it changes what is sent.",
        ("application/json", "EndpointDefinition"),
        ((201, "Endpoint", "Created."), (200, "Endpoint", "The endpoint as it now is.")),
        _KEYED,
    ),
    ("POST", "/webhooks/subscriptions"): Operation(
        "Define a webhook subscription",
        (*_DEFINING, "not_found", "conflict"),
        definitions.SUBSCRIPTIONS.scope,
        "Without id it creates; with the id of a subscription of the account it changes what is sent.",
        ("application/json", "SubscriptionDefinition"),
        ((201, "Subscription", "Created."), (200, "Subscription", "The subscription as it now is.")),
        _KEYED,
    ),
    ("GET", "/webhooks/deliveries"): Operation(
        "Read webhook deliveries",
        (*_ANY, *_BEARER),
        deliveries.SCOPE,
        "A page of deliveries that match every filter sent, newest first; or one of the other views.",
        answers=((200, "Deliveries", "What is wanted."),),
        parameters=("Gatepost-Version", "DPoP", *QUERY),
    ),
}  # fmt: skip

HEADERS: dict[str, Json] = {
    "X-Request-Id": {
        "required": True, "schema": identifier("req"), "description": "Finds this request in log and ledger.",
    },
    "Gatepost-Version": {"required": True, "schema": {"type": "string", "enum": [VERSION]}},
    "Gatepost-Event": {"schema": identifier("evt"), "description": "The ledger entry that records this answer."},
    "DPoP-Nonce": {"schema": {"type": "string"}, "description": "For the next proof, where this request had one."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}},
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}},
}  # fmt: skip
PARAMETERS: dict[str, Json] = {
    "Gatepost-Version": {"in": "header", "schema": {"type": "string", "enum": [VERSION]}},
    "DPoP": {
        "in": "header",
        "schema": {"type": "string"},
        "description": "A proof of possession: a JWT as RFC 9449 has it, with the nonce of the last DPoP-Nonce.",
    },
    "Idempotency-Key": {
        "in": "header",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        "description": "The same key and body within 24 hours get the same answer, a secret only in the first.",
    },
}
PARAMETERS |= {
    name: {"in": "query", "schema": schema} | ({"description": description} if description else {})
    for name, (schema, description) in QUERY.items()
}
