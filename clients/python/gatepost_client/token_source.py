"""Access tokens that a client obtains for itself (client credentials), cached until shortly before they expire."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gatepost_client.errors import ApiError
from gatepost_client.schemas import Token
from gatepost_client.shared_call import SharedCall

LONGEST_MARGIN = 60.0  # seconds before the expiry at which a token is no longer used; a tenth of a short lifetime


@dataclass(frozen=True, slots=True)
class ObtainedToken:
    """An access token, its scheme in the header Authorization, and until when it is used."""

    value: str = field(repr=False)
    scheme: str
    use_until: float


class TokenSource:
    """The token for one scope and resource. Concurrent callers share one request."""

    def __init__(self, obtain: Callable[[], Token], clock: Callable[[], float]) -> None:
        self._obtain, self._clock = obtain, clock
        self._token: ObtainedToken | None = None
        self._renew = SharedCall(self._request)

    def get(self) -> ObtainedToken:
        """The cached token, or a new one. Raises ApiError."""
        return self._cached() or self._renew()

    async def get_async(self) -> ObtainedToken:
        """The same, without blocking the event loop."""
        return self._cached() or await self._renew.call_async()

    def drop(self, token: ObtainedToken) -> None:
        """Do not use a token again that was refused."""
        if self._token is token:
            self._token = None

    def _cached(self) -> ObtainedToken | None:
        token = self._token
        return token if token is not None and self._clock() < token.use_until else None

    def _request(self) -> ObtainedToken:
        cached = self._cached()  # another caller may have renewed it just now
        if cached is not None:
            return cached
        started = self._clock()
        answer = self._obtain()
        try:
            value, scheme, lifetime = answer["access_token"], answer["token_type"], float(answer["expires_in"])
        except (KeyError, TypeError, ValueError):
            raise ApiError("unexpected_response", "The response of the token endpoint is not a token.") from None
        margin = min(LONGEST_MARGIN, lifetime / 10)
        self._token = ObtainedToken(value, scheme, started + lifetime - margin)
        return self._token
