"""The six operations: their requests, responses and error codes, and the parameters and headers that they share."""

from typing import NamedTuple

from gatepost.core.json_schema import Json, identifier
from gatepost.web import definitions, deliveries
from gatepost.web.requests import FORM
from gatepost.web.responses import VERSION


class Operation(NamedTuple):
    """One of the six: its request, its responses, and its error codes from errors.ERRORS."""

    summary: str
    codes: tuple[str, ...]
    scope: str = ""  # that the access token must have; if empty, the client authenticates
    description: str = ""
    request: tuple[str, str] | None = None  # media type and the name of a schema
    responses: tuple[tuple[int, str, str], ...] = ()  # status, the name of a schema, description
    parameters: tuple[str, ...] = ("Gatepost-Version", "DPoP")


_ANY = ("invalid_request", "unsupported_version", "too_many_requests", "temporarily_unavailable")
PROOF = ("invalid_dpop_proof", "use_dpop_nonce")  # RFC 9449: 401 where an access token is sent
_BEARER = ("invalid_token", "insufficient_scope", *PROOF)
_BODY = ("request_timeout", "request_too_large", "unsupported_media_type")


def _define(noun: str, operation: definitions.Operation, description: str, *codes: str) -> Operation:
    """One of the operations that define a resource. The names of its schemas begin with the last word of the noun."""
    resource = noun.rsplit(maxsplit=1)[-1]
    schema = resource.title()
    return Operation(
        f"Define a {noun}",
        (*_ANY, *_BEARER, *_BODY, "limit_reached", "idempotency_key_reused", *codes),
        operation.scope,
        description,
        ("application/json", f"{schema}Definition"),
        ((201, schema, "Created."), (200, schema, f"The current {resource}.")),
        ("Gatepost-Version", "DPoP", "Idempotency-Key"),
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/oauth/clients"): _define(
        "client",
        definitions.CLIENTS,
        "Without client_id, creates a client. With client_id, changes the members sent.",
        *("invalid_client_metadata", "invalid_redirect_uri", "not_found"),
    ),
    ("POST", "/oauth/scopes"): _define(
        "scope",
        definitions.SCOPES,
        "The name identifies the scope. Changing an existing scope requires redefine.",
        "conflict",
    ),
    ("POST", "/oauth/tokens"): Operation(
        "Obtain a token",
        (
            *_ANY, "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
            "invalid_target", *PROOF, "request_timeout", "request_too_large", "too_many_failures", "quota_exceeded",
        ),
        "",
        "The client authenticates by its registered method: HTTP Basic, client_secret in the body, or an assertion. A "
        "public client sends client_id.",
        (FORM, "TokenRequest"),
        ((200, "Token", "Issued."),),
    ),
    ("POST", "/webhooks/endpoints"): _define(
        "webhook endpoint",
        definitions.ENDPOINTS,
        "Without id, creates an endpoint. With id, changes the members sent.",
        *("not_found", "conflict"),
    ),
    ("POST", "/webhooks/subscriptions"): _define(
        "webhook subscription",
        definitions.SUBSCRIPTIONS,
        "Without id, creates a subscription. With id, changes the members sent.",
        *("not_found", "conflict"),
    ),
    ("GET", "/webhooks/deliveries"): Operation(
        "Read webhook deliveries",
        (*_ANY, *_BEARER),
        deliveries.SCOPE,
        "Returns a page of deliveries that match all filters, newest first, or one of the other views.",
        responses=((200, "Deliveries", "A page of deliveries, or the view requested."),),
        parameters=("Gatepost-Version", "DPoP", *deliveries.PARAMETERS),
    ),
}  # fmt: skip

HEADERS: dict[str, Json] = {
    "X-Request-Id": {
        "required": True, "schema": identifier("req"), "description": "Identifies the request in log and ledger.",
    },
    "Gatepost-Version": {"required": True, "schema": {"type": "string", "enum": [VERSION]}},
    "Gatepost-Event": {"schema": identifier("evt"), "description": "The ledger entry that records this response."},
    "DPoP-Nonce": {"schema": {"type": "string"}, "description": "The nonce for the next proof, if there was one."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}},
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1}},
}  # fmt: skip
PARAMETERS: dict[str, Json] = {
    "Gatepost-Version": {"in": "header", "schema": {"type": "string", "enum": [VERSION]}},
    "DPoP": {
        "in": "header",
        "schema": {"type": "string"},
        "description": "A proof of possession: a JWT as specified by RFC 9449, with the nonce of the last DPoP-Nonce.",
    },
    "Idempotency-Key": {
        "in": "header",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
        "description": "The same key and body within 24 hours get the same response. Only the first contains a secret.",
    },
}
PARAMETERS |= {
    name: {"in": "query", "schema": schema} | ({"description": description} if description else {})
    for name, (schema, description, _) in deliveries.PARAMETERS.items()
}
