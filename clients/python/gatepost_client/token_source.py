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
    """The token for one scope and resource. Concurrent callers share one request.

    `scheme` is the type that the token must have: Bearer, or DPoP if token requests have proofs.
    """

    def __init__(self, obtain: Callable[[], Token], clock: Callable[[], float], scheme: str) -> None:
        self._obtain, self._clock, self._scheme = obtain, clock, scheme
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
        match self._obtain():
            case {"access_token": str(value), "token_type": str(scheme), "expires_in": int(lifetime)} if (
                value and scheme.lower() == self._scheme.lower() and lifetime is not True and 0 < lifetime < 1 << 31
            ):
                margin = min(LONGEST_MARGIN, lifetime / 10)
                self._token = ObtainedToken(value, self._scheme, started + lifetime - margin)
                return self._token
        raise ApiError("unexpected_response", "The response of the token endpoint is not a token.")
