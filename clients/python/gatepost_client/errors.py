"""All exceptions of the client. No message contains a token, a secret or a proof.

GatepostError
├── VerificationError    a webhook cannot be trusted
├── TokenError           an access token is not accepted; has the status and the challenge to respond with
└── ApiError             Gatepost refused a request, could not be reached, or its response could not be read
"""

from collections.abc import Mapping, Sequence


class GatepostError(Exception):
    """The base class of all exceptions of the client."""


class VerificationError(GatepostError, ValueError):
    """The webhook cannot be trusted. `check` names the check that failed, and the message says why."""

    def __init__(self, message: str, check: str = "secret") -> None:
        super().__init__(message)
        self.check = check


class TokenError(GatepostError):
    """The access token is not accepted.

    `check` names the check that failed, `error` is the code of RFC 6750 or RFC 9449 (empty if no token was sent), and
    `status`, `www_authenticate` and `body` are what an API should respond with.
    """

    def __init__(self, check: str, message: str, *, error: str, status: int = 401, www_authenticate: str = "") -> None:
        super().__init__(message)
        self.check = check
        self.error = error
        self.status = status
        self.www_authenticate = www_authenticate

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        challenge = {"WWW-Authenticate": self.www_authenticate} if self.www_authenticate else {}
        return challenge | {"Cache-Control": "no-store"}

    @property
    def body(self) -> dict[str, str]:
        """The JSON body of the response."""
        return {"error": self.error, "error_description": str(self)} if self.error else {}


class ApiError(GatepostError):
    """Gatepost refused a request, or there was no usable response.

    `code` is the error code of the response, or one of the client: `connection_failed` (the request may have been
    processed), `unexpected_response` (not from Gatepost, for example of a proxy) and `events_url_missing`. `errors`
    names the members at fault.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str = "",
        event_id: str = "",
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" + (f" ({request_id})" if request_id else ""))
        self.code = code
        self.message = message
        self.status = status
        self.errors = errors
        self.request_id = request_id
        self.event_id = event_id
        self.retry_after = retry_after
