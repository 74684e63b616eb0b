"""Access tokens in Starlette and FastAPI.

    reader = require(verifier, "invoices:read")

    @app.get("/invoices")
    async def invoices(token: Annotated[AccessToken, Depends(reader)]) -> list[Invoice]: ...

In Starlette, call it: `token = await reader(request)`.
"""

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request

from gatepost_client.access_tokens import AccessToken, RequestCredentials, TokenVerifier
from gatepost_client.dpop import request_url
from gatepost_client.errors import TokenError


def require(
    verifier: TokenVerifier, *scopes: str, account: str | None = None, base_url: str | None = None
) -> Callable[[Request], Awaitable[AccessToken]]:
    """A dependency that returns the access token of a request, if it has all of these scopes.

    Any other request is refused with the status and the challenge that belong to the failed check. `base_url` is the
    public URL of the API, for DPoP proofs; set it behind a proxy that does not pass on the host.
    """

    async def access_token(request: Request) -> AccessToken:
        origin = f"{request.url.scheme}://{request.url.netloc}" if base_url is None else base_url.rstrip("/")
        raw_path = request.scope.get("raw_path")
        url = origin + raw_path.decode("latin-1") if raw_path else request_url(origin, request.scope["path"])
        credentials = RequestCredentials(
            request.headers.getlist("authorization"), request.headers.getlist("dpop"), request.method, url
        )
        try:
            return await verifier.verify_async(credentials, scopes=scopes, account=account)
        except TokenError as error:
            raise HTTPException(error.status, str(error), error.headers) from None

    return access_token
