"""Verification of access tokens (RFC 9068) in an API, without a request to Gatepost for each token.

    verifier = TokenVerifier("https://gatepost.example.com", "https://api.example.com")
    token = verifier.verify(request.headers["Authorization"], scopes=["invoices:read"])

`CHECKS` lists the checks in their order. A `TokenError` names the one that failed.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from gatepost_client import dpop, jose
from gatepost_client.errors import ApiError, TokenError
from gatepost_client.jose import Jws
from gatepost_client.jwks import Key, KeySet
from gatepost_client.transport import Transport, base_url

ALGORITHMS = ("ES256", "RS256", "EdDSA")  # the values of an account's `signing_alg`
LEEWAY = 10.0  # seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = ("at+jwt", "application/at+jwt")  # RFC 9068, section 4


class Refusal(NamedTuple):
    """How an API responds if a check fails. The challenge has no error code if `error` is empty."""

    status: int
    error: str
    message: str


CHECKS = {
    "authorization": Refusal(401, "", "The request has no access token."),
    "request": Refusal(
        400, "invalid_request", "Send one Authorization header with the scheme Bearer or DPoP and a token."
    ),
    "size": Refusal(401, "invalid_token", f"The token is larger than {jose.MAX_BYTES} bytes."),
    "format": Refusal(401, "invalid_token", "The token is not a signed JWT."),
    "typ": Refusal(401, "invalid_token", "The token is not an access token (typ at+jwt)."),
    "alg": Refusal(401, "invalid_token", "The algorithm of the token is not allowed."),
    "keys": Refusal(503, "", "The key set of the issuer is not available."),
    "kid": Refusal(401, "invalid_token", "The key of the token is not in the key set of the issuer."),
    "signature": Refusal(401, "invalid_token", "The signature of the token is not valid."),
    "iss": Refusal(401, "invalid_token", "The token is from another issuer."),
    "aud": Refusal(401, "invalid_token", "The token is for another audience."),
    "exp": Refusal(401, "invalid_token", "The token has expired."),
    "nbf": Refusal(401, "invalid_token", "The token is not valid yet."),
    "account": Refusal(401, "invalid_token", "The token is of another account."),
    "dpop_scheme": Refusal(
        401, "invalid_token", "A token that is bound to a key needs the scheme DPoP, any other Bearer."
    ),
    "dpop_proof": Refusal(
        401, "invalid_dpop_proof", "Send one DPoP proof that is signed with the public key in its header."
    ),
    "dpop_key": Refusal(401, "invalid_dpop_proof", "The token is bound to another key than that of the DPoP proof."),
    "dpop_htm": Refusal(401, "invalid_dpop_proof", "The DPoP proof is for another method."),
    "dpop_htu": Refusal(401, "invalid_dpop_proof", "The DPoP proof is for another URL."),
    "dpop_ath": Refusal(401, "invalid_dpop_proof", "The DPoP proof is for another token."),
    "dpop_iat": Refusal(401, "invalid_dpop_proof", "The DPoP proof is too old or too new."),
    "dpop_jti": Refusal(
        401, "invalid_dpop_proof", "The DPoP proof has no jti or was used before, or too many proofs were used."
    ),
    "scope": Refusal(403, "insufficient_scope", "The token does not have the required scope."),
}


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The verified content of an access token. `claims` has everything, also claims of the client or the account."""

    subject: str
    client_id: str
    account: str
    scopes: frozenset[str]
    audience: tuple[str, ...]
    expires_at: datetime
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def actor(self) -> str | None:
        """Who acts for the subject, if somebody does: the `sub` of `act` (RFC 8693, section 4.1)."""
        act = self.claims.get("act")
        return act.get("sub") if isinstance(act, dict) else None


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of a request to an API: its headers Authorization and DPoP, its method and its URL.

    The URL is the one that the client used. Behind a proxy, it begins with the public URL of the API.
    """

    authorization: str | Sequence[str] | None = field(repr=False)
    dpop: str | Sequence[str] | None = field(default=None, repr=False)
    method: str = "GET"
    url: str = ""


class TokenVerifier:
    """Verifies access tokens for one API. Create it once: it holds the cached key set and the used DPoP proofs.

    `audience` is the `resource` of the API's scopes. `account` is the only account whose tokens are accepted; name it
    if several accounts share the API. Methods may be called from several threads.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        account: str | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        jwks_uri: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        transport: Transport | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if not algorithms or any(alg not in jose.ALGORITHMS for alg in algorithms):
            raise ValueError(f"algorithms: must be some of {', '.join(jose.ALGORITHMS)}")
        if not audience:
            raise ValueError("audience: must be the resource of the API")
        self._issuer, self._audience, self._account = base_url(issuer, "issuer"), audience, account
        self._algorithms = tuple(algorithms)
        self._clock = clock or time.time
        transport = transport or Transport(timeout=5, ssl_context=ssl_context)
        self._keys = KeySet(jwks_uri or f"{self._issuer}/oauth/jwks", transport, clock or time.monotonic)
        self._used = dpop.UsedProofs()

    def verify(
        self, credentials: RequestCredentials | str | None, *, scopes: Iterable[str] = (), account: str | None = None
    ) -> AccessToken:
        """Verify the token of a request. Raises `TokenError`.

        Pass `RequestCredentials`, or only the value of the header Authorization if your API accepts no tokens that are
        bound to keys. The token must have all of the scopes. `account` takes the place of that of the verifier; if it
        is empty, no token is accepted.
        """
        presented = _presented(credentials)
        with _refusing(presented, scopes := tuple(scopes)):
            jws, kid = self._parse(presented.token)
            return self._accept(presented, jws, self._keys.get(kid), scopes, account)

    async def verify_async(
        self, credentials: RequestCredentials | str | None, *, scopes: Iterable[str] = (), account: str | None = None
    ) -> AccessToken:
        """The same, for an event loop. It waits only while the key set is fetched."""
        presented = _presented(credentials)
        with _refusing(presented, scopes := tuple(scopes)):
            jws, kid = self._parse(presented.token)
            return self._accept(presented, jws, await self._keys.get_async(kid), scopes, account)

    def _parse(self, token: str) -> tuple[Jws, str]:
        """The checks before the key: size, format, typ and alg."""
        if len(token) > jose.MAX_BYTES:
            raise _Failed("size")
        try:
            jws = jose.parse(token)
        except ValueError:
            raise _Failed("format") from None
        if jws.header.get("typ") not in TYPES:
            raise _Failed("typ")
        if jws.header.get("alg") not in self._algorithms:
            raise _Failed("alg")
        kid = jws.header.get("kid")
        return jws, kid if isinstance(kid, str) else ""

    def _accept(
        self, presented: "_Presented", jws: Jws, key: Key | None, scopes: Sequence[str], account: str | None
    ) -> AccessToken:
        """The checks from the key on."""
        if key is None:
            raise _Failed("kid")
        if key.alg not in (None, jws.header["alg"]) or not jws.is_signed_by(key.public):
            raise _Failed("signature")
        token = _read(jws)
        self._check_claims(token, self._account if account is None else account)
        self._check_proof(token, presented)
        if not token.scopes.issuperset(scopes):
            raise _Failed("scope")
        return token

    def _check_claims(self, token: AccessToken, account: str | None) -> None:
        now = self._clock()
        if token.claims.get("iss") != self._issuer:
            raise _Failed("iss")
        if self._audience not in token.audience:
            raise _Failed("aud")
        expires, starts = (jose.numeric_date(token.claims.get(name, 0)) for name in ("exp", "nbf"))
        if expires is None or now >= expires + LEEWAY:
            raise _Failed("exp")
        if starts is None or now < starts - LEEWAY:
            raise _Failed("nbf")
        if account is not None and (not account or token.account != account):
            raise _Failed("account")

    def _check_proof(self, token: AccessToken, presented: "_Presented") -> None:
        """RFC 9449, section 7.1. A bound token that is sent as Bearer is refused: section 7.2."""
        is_bound, confirmation = "cnf" in token.claims, token.claims.get("cnf")
        if is_bound != presented.is_dpop:
            raise _Failed("dpop_scheme")
        if not is_bound:
            return
        try:
            dpop.check(
                presented.proofs,
                method=presented.method,
                url=presented.url,
                token=presented.token,
                thumbprint=confirmation.get("jkt") if isinstance(confirmation, dict) else None,
                now=self._clock(),
                used=self._used,
            )
        except dpop.ProofError as error:
            raise _Failed(error.check) from None


class _Failed(Exception):
    """A check that failed, before it becomes a TokenError with a challenge."""

    def __init__(self, check: str) -> None:
        super().__init__(check)
        self.check = check


class _Presented(NamedTuple):
    """A token as it was sent."""

    token: str
    is_dpop: bool
    proofs: Sequence[str]
    method: str
    url: str


def _presented(credentials: RequestCredentials | str | None) -> _Presented:
    """Read the token of a request: RFC 6750, section 2.1; RFC 9449, section 7.1."""
    if not isinstance(credentials, RequestCredentials):
        credentials = RequestCredentials(credentials)
    headers = _values(credentials.authorization)
    scheme, _, token = headers[0].strip().partition(" ") if headers else ("", "", "")
    token = token.strip()
    is_dpop = scheme.lower() == "dpop"
    if len(headers) == 1 and not is_dpop and scheme.lower() != "bearer":
        headers = []
    if len(headers) != 1 or not token or " " in token:
        raise _error("request" if headers else "authorization", is_dpop=is_dpop)
    return _Presented(token, is_dpop, _values(credentials.dpop), credentials.method, credentials.url)


def _values(header: str | Sequence[str] | None) -> list[str]:
    return [header] if isinstance(header, str) else list(header or ())


@contextmanager
def _refusing(presented: _Presented, scopes: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except _Failed as failed:
        is_dpop = presented.is_dpop or failed.check.startswith("dpop_")
        raise _error(failed.check, is_dpop=is_dpop, scopes=scopes) from None
    except ApiError:
        raise _error("keys", is_dpop=presented.is_dpop) from None


def _error(check: str, *, is_dpop: bool, scopes: Sequence[str] = ()) -> TokenError:
    """The error for a failed check, with the challenge of RFC 6750, section 3, or RFC 9449, section 7.1."""
    status, error, message = CHECKS[check]
    attributes = {"error": error, "error_description": message} if error else {}
    if check == "scope":
        attributes["scope"] = " ".join(scopes)
    if is_dpop:
        attributes["algs"] = " ".join(jose.ALGORITHMS)
    parts = ", ".join(f'{name}="{value}"' for name, value in attributes.items())
    challenge = "" if check == "keys" else f"{'DPoP' if is_dpop else 'Bearer'} {parts}".strip()
    return TokenError(check, message, error=error, status=status, www_authenticate=challenge)


def _read(jws: Jws) -> AccessToken:
    """The content of a token whose signature is verified."""
    try:
        claims = jws.claims()
    except ValueError:
        raise _Failed("format") from None
    audience, scope, account = claims.get("aud"), claims.get("scope"), claims.get("account")
    subject, client = claims.get("sub"), claims.get("client_id")
    if not isinstance(subject, str) or not isinstance(client, str):  # RFC 9068, section 2.2
        raise _Failed("format")
    return AccessToken(
        subject=subject,
        client_id=client,
        account=account if isinstance(account, str) else "",
        scopes=frozenset(scope.split(" ")) if isinstance(scope, str) else frozenset(),
        audience=tuple(audience) if isinstance(audience, list) else (audience,) if isinstance(audience, str) else (),
        expires_at=_EPOCH + timedelta(seconds=jose.numeric_date(claims.get("exp")) or 0),
        claims=claims,
    )
