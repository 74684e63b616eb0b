"""All errors: the tree of exceptions, and the table of error codes.

    GatepostError
    ├── BadSetting          a setting, option or key cannot be used; the command prints the reason and exits
    │   ├── NotFound        there is no account, client, delivery … with this name or id
    │   ├── Refused         what was asked for is not possible in the present state
    │   ├── Altered         a proof or checkpoint was altered
    │   └── NoStore         there is no store here, or its schema is not that of this release
    └── Unavailable         the store is not available now; 503 with Retry-After

Each class has the exit code with which a command ends.

A refusal of a request is not an exception. It is a `Refusal`, which the decision returns and commits.
"""

from typing import NamedTuple

import msgspec


class GatepostError(Exception):
    """The base class of all exceptions of Gatepost."""

    exit_code = 1


class BadSetting(GatepostError):
    """The message tells the operator what is wrong and what to do."""

    exit_code = 2


class NotFound(BadSetting):
    """There is no resource with the name or id that the operator gave."""

    exit_code = 3


class Altered(BadSetting):
    """What a command verified was altered. The exit code is that of any problem that a verification finds."""

    exit_code = 1


class Refused(BadSetting):
    """The values are well formed, but the operation or the state of a resource does not allow the change."""

    exit_code = 4


class NoStore(BadSetting):
    """The settings name no store that this release can use. A command that waits and tries again fails again."""

    exit_code = 5


class Unavailable(GatepostError):
    """The store is full, locked, unreachable or restarting. Nothing was written, and the request can be retried."""

    exit_code = 5


class Meaning(NamedTuple):
    """The HTTP status of an error code, and what the code means."""

    status: int
    meaning: str


# Error code → status and meaning. The reference docs print this table, and a test compares them.
ERRORS: dict[str, Meaning] = {
    "invalid_request": Meaning(400, "A parameter or member is missing, repeated, malformed or of the wrong type."),
    "invalid_client": Meaning(401, "Client authentication failed. The response does not tell the reason."),
    "invalid_grant": Meaning(400, "The code, token or assertion is invalid, expired, revoked or not this client's."),
    "unauthorized_client": Meaning(400, "The client is not configured for this grant type."),
    "unsupported_grant_type": Meaning(400, "This server does not support the grant type."),
    "invalid_scope": Meaning(400, "A scope is missing, unknown, retired or not allowed for the client's grant."),
    "invalid_target": Meaning(400, "The resource does not belong to any requested scope (RFC 8707)."),
    "invalid_client_metadata": Meaning(400, "A member of the client's definition is not acceptable (RFC 7591)."),
    "invalid_redirect_uri": Meaning(400, "A redirect URI is not acceptable (RFC 7591)."),
    "invalid_token": Meaning(401, "The access token is missing, malformed, expired, revoked or of another audience."),
    "insufficient_scope": Meaning(403, "The access token does not have the scope that this operation requires."),
    "invalid_dpop_proof": Meaning(400, "The DPoP proof is missing or does not fit the request; 401 at the operations."),
    "use_dpop_nonce": Meaning(400, "The DPoP proof needs the nonce of the DPoP-Nonce header; 401 at the operations."),
    "unsupported_response_type": Meaning(400, "The only response type is code."),
    "request_not_supported": Meaning(400, "Request objects are not supported; use a pushed authorization request."),
    "registration_not_supported": Meaning(400, "Clients cannot register in an authorization request."),
    "access_denied": Meaning(400, "The person, or the account's login application, denied the request."),
    "login_required": Meaning(400, "The person has to be authenticated, or authenticated again."),
    "consent_required": Meaning(400, "The person has to give consent, which prompt=none forbids."),
    "interaction_required": Meaning(400, "The person has to interact, which prompt=none forbids."),
    "account_selection_required": Meaning(400, "The person has to choose an account, which prompt=none forbids."),
    "unmet_authentication_requirements": Meaning(400, "The person was not authenticated in the way that is essential."),
    "not_found": Meaning(404, "No such path, or no resource with that id in the caller's account."),
    "method_not_allowed": Meaning(
        405, "The path does not support this method; the `Allow` header lists the methods that it supports."
    ),
    "conflict": Meaning(
        409, "The name or id is taken by another definition or event, or the resource is removed, which is final."
    ),
    "limit_reached": Meaning(409, "The account has reached the limit that its settings set for this resource."),
    "request_timeout": Meaning(408, "The body did not arrive in time: 30 seconds at most, and not too slowly."),
    "request_too_large": Meaning(413, "The body, a header or a parameter is larger than this operation allows."),
    "unsupported_media_type": Meaning(415, "The operation requires application/json."),
    "misdirected_request": Meaning(421, "The operations plane does not serve the host in the Host header."),
    "idempotency_key_reused": Meaning(422, "The Idempotency-Key was used with another body within 24 hours."),
    "too_many_failures": Meaning(
        429, "More than ten authentications a minute failed for this client and address. Correct ones still succeed."
    ),
    "quota_exceeded": Meaning(
        429, "The account or the client has used up its tokens of this minute, or has too many requests in progress."
    ),
    "too_many_requests": Meaning(429, "Too many requests from this address are in progress. Try again soon."),
    "unsupported_version": Meaning(400, "This server does not support the version in the Gatepost-Version header."),
    "temporarily_unavailable": Meaning(
        503, "The store is not available now. Try again, with the same Idempotency-Key if you sent one."
    ),
    "server_error": Meaning(
        500, "Internal error. Quote the request id when you report it: the log has the details under that id."
    ),
}


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused: an error code, a description, and a JSON pointer to the member at fault."""

    code: str
    detail: str
    pointer: str = ""
    retry_after: int = 0
    rule: str = ""
    status_override: int = 0  # used instead of the status in the table

    @property
    def status(self) -> int:
        return self.status_override or ERRORS[self.code].status
