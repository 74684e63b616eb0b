"""Requests to Gatepost: sent again when that is useful, with DPoP proofs, and their errors as exceptions."""

import secrets
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from gatepost_client.dpop import ProofKey
from gatepost_client.errors import ApiError
from gatepost_client.transport import KeptConnectionClosedError, Request, Response, Transport

RETRIES = 3
RETRIED = (429, 503)  # statuses with which Gatepost says that nothing was done
FIRST_WAIT = 0.5  # seconds; doubles with each retry, less up to a half of it at random
LONGEST_WAIT = 60.0  # seconds; a longer Retry-After is left to the caller


class Sender:
    """Sends requests of one client. It may be used by several threads at the same time."""

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        proof_key: ProofKey | None,
    ) -> None:
        self._transport, self._clock, self._sleep, self._proof_key = transport, clock, sleep, proof_key
        self._nonces: dict[str, str] = {}  # the last nonce of each origin: RFC 9449, section 8.2

    def send(self, build: Callable[[], Request], token: str | None = None) -> Response:
        """Send a request and return its response, whatever its status. Raises ApiError if there is none.

        `build` is called for each attempt, because an assertion can be used only once.
        """
        retries = 0
        while True:
            request = build()
            try:
                response = self._attempt(request, build, token)
            except KeptConnectionClosedError:
                continue  # the kept connections run out
            except ApiError as error:
                if retries == RETRIES or not request.repeatable or error.code != "connection_failed":
                    raise
                wait = None
            else:
                wait = retry_after(response, self._clock())
                is_final = response.status not in RETRIED or not request.repeatable or retries == RETRIES
                if is_final or (wait or 0) > LONGEST_WAIT:
                    return response
            self._sleep(_backoff(retries) if wait is None else wait)
            retries += 1

    def result(self, response: Response) -> dict[str, Any]:
        """The JSON of a successful response. Raises ApiError."""
        members = response.json()
        if 200 <= response.status < 300:
            return members
        wait = retry_after(response, self._clock())
        raise ApiError(
            str(members.get("error") or members.get("code") or "unexpected_response"),
            str(members.get("error_description") or members.get("detail") or f"status {response.status}"),
            status=response.status,
            errors=members.get("errors") or (),
            request_id=response.headers.get("x-request-id", ""),
            event_id=response.headers.get("gatepost-event", ""),
            retry_after=None if wait is None else round(wait),
        )

    def proof(self, method: str, url: str, token: str | None) -> dict[str, str]:
        """The header with a DPoP proof, if the client has a key for proofs."""
        if self._proof_key is None:
            return {}
        nonce = self._nonces.get(_origin(url))
        return {"DPoP": self._proof_key.proof(method, url, token=token, nonce=nonce, now=self._clock())}

    def _attempt(self, request: Request, build: Callable[[], Request], token: str | None) -> Response:
        """Send a request, and once more with the nonce that the response asks for."""
        response = self._with_proof(request, token)
        if self._proof_key is not None and response.status in (400, 401) and _asks_for_nonce(response):
            response = self._with_proof(build(), token)
        return response

    def _with_proof(self, request: Request, token: str | None) -> Response:
        headers = {**request.headers, **self.proof(request.method, request.url, token)}
        response = self._transport.send(request._replace(headers=headers))
        nonce = response.headers.get("dpop-nonce")
        if nonce:
            self._nonces[_origin(request.url)] = nonce
        return response


def retry_after(response: Response, now: float) -> float | None:
    """The seconds that the response asks to wait, or None: RFC 9110, section 10.2.3."""
    text = response.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, float(parsedate_to_datetime(text).timestamp()) - now)
    except (ValueError, OverflowError):
        return None


def _backoff(retries: int) -> float:
    return FIRST_WAIT * 2.0**retries * (0.5 + secrets.randbelow(501) / 1000)


def _asks_for_nonce(response: Response) -> bool:
    try:
        members = response.json()
    except ApiError:
        return False
    return "use_dpop_nonce" in (members.get("error"), members.get("code"))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
