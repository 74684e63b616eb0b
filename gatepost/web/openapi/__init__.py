"""The OpenAPI 3.1 document of the six operations, built from the tables that Gatepost itself runs on.

`python -m gatepost.web.openapi` prints it; `gatepost/openapi.json` is that output, and a test keeps the two equal.
"""

import json

from gatepost.core.errors import ERRORS
from gatepost.core.json_schema import Json, published, ref
from gatepost.ledger.operations import OPERATIONS as OPERATION_SCOPES
from gatepost.web.app import ROUTES
from gatepost.web.openapi import deliveries, oauth, webhooks
from gatepost.web.openapi.operations import HEADERS, OPERATIONS, PARAMETERS, PROOF, Operation
from gatepost.web.responses import VERSION

__all__ = ["OPERATIONS", "document", "text"]


def document() -> Json:
    """The whole document."""
    paths = {
        path: {method.lower(): _operation(path, OPERATIONS[(method, path)]) for method in route.methods}
        for path, route in ROUTES.items()
        if route.kind == "operation"
    }
    whole: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "Gatepost",
            "version": VERSION,
            "summary": "Issues and audits tokens, delivers and explains webhooks, from one ledger.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8080", "description": "The default base URL."}],
        "paths": paths,
        "components": {
            "schemas": oauth.schemas() | webhooks.schemas() | deliveries.schemas(),
            "headers": HEADERS,
            "parameters": {name: {"name": name} | about for name, about in PARAMETERS.items()},
            "securitySchemes": {
                "client": {"type": "http", "scheme": "basic", "description": "client_id and client_secret."},
                "token": {
                    "type": "oauth2",
                    "description": "An access token of Gatepost, sent as Authorization: Bearer; or, if the token is "
                    "bound to a key, as Authorization: DPoP, with a proof in the DPoP header.",
                    "flows": {"clientCredentials": {"tokenUrl": "/oauth/tokens", "scopes": OPERATION_SCOPES}},
                },
            },
        },
    }
    return published(whole)


def _operation(path: str, operation: Operation) -> Json:
    described: Json = {
        "operationId": operation.summary.lower().replace(" a ", " ").replace(" ", "_"),
        "summary": operation.summary,
        "tags": [path.split("/")[1]],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in operation.parameters],
        "security": [{"token": [operation.scope]}] if operation.scope else [{"client": []}, {}],
        "responses": {str(status): _response(*rest) for status, *rest in operation.responses}
        | _refusals(path, operation),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.request:
        media_type, schema = operation.request
        described["requestBody"] = {"required": True, "content": {media_type: {"schema": ref(schema)}}}
    return described


def _response(schema: str, description: str) -> Json:
    return {
        "description": description,
        "headers": _headers("Gatepost-Event"),
        "content": {"application/json": {"schema": ref(schema)}},
    }


def _refusals(path: str, operation: Operation) -> dict[str, Json]:
    """One response for each status, with its error codes, in the format of the area that the path belongs to."""
    media_type, schema, member = "application/problem+json", "Problem", "code"
    if path.startswith("/oauth/"):
        media_type, schema, member = "application/json", "OAuthError", "error"
    responses: dict[str, Json] = {}
    status_of = {code: 401 if operation.scope and code in PROOF else ERRORS[code].status for code in operation.codes}
    for status in sorted(set(status_of.values())):
        codes = [code for code in operation.codes if status_of[code] == status]
        more = {401: ["WWW-Authenticate"], 403: ["WWW-Authenticate"], 429: ["Retry-After"], 503: ["Retry-After"]}
        responses[str(status)] = {
            "description": "\n".join(f"- `{code}`: {ERRORS[code].meaning}" for code in codes),
            "headers": _headers("Gatepost-Event", *more.get(status, [])),
            "content": {media_type: {"schema": {"allOf": [ref(schema), {"properties": {member: {"enum": codes}}}]}}},
        }
    return responses


def _headers(*more: str) -> Json:
    names = ("X-Request-Id", "Gatepost-Version", "DPoP-Nonce", *more)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def text() -> str:
    """The document as JSON text."""
    return json.dumps(document(), indent=2, sort_keys=True) + "\n"
