"""Access tokens in Django.

@require(verifier, "invoices:read")
def invoices(request: HttpRequest) -> JsonResponse:
    token = request.access_token
"""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest, JsonResponse

from gatepost_client.access_tokens import RequestCredentials, TokenVerifier
from gatepost_client.dpop import request_url
from gatepost_client.errors import TokenError

View = Callable[..., Any]


def require(
    verifier: TokenVerifier, *scopes: str, account: str | None = None, base_url: str | None = None
) -> Callable[[View], View]:
    """A decorator for views: the access token must have all of these scopes. The view finds it in the request.

    The view is exempt from the protection against cross-site request forgery, because a browser does not send a token
    by itself. Any other request is refused with the status and the challenge that belong to the failed check.
    `base_url` is the public URL of the API, for DPoP proofs; set it behind a proxy that does not pass on the host.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            try:
                request.access_token = verifier.verify(_credentials(request, base_url), scopes=scopes, account=account)
            except TokenError as error:
                return _refusal(error)
            return view(request, *args, **kwargs)

        @wraps(view)
        async def checked_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            credentials = _credentials(request, base_url)
            try:
                request.access_token = await verifier.verify_async(credentials, scopes=scopes, account=account)
            except TokenError as error:
                return _refusal(error)
            return await view(request, *args, **kwargs)

        protected: View = checked_async if iscoroutinefunction(view) else checked
        protected.csrf_exempt = True  # type: ignore[attr-defined]
        return protected

    return decorate


def _credentials(request: HttpRequest, base_url: str | None) -> RequestCredentials:
    url = request_url(base_url or f"{request.scheme}://{request.get_host()}", request.path)
    headers = request.headers
    return RequestCredentials(headers.get("Authorization"), headers.get("DPoP"), request.method, url)


def _refusal(error: TokenError) -> Any:
    return JsonResponse(error.body, status=error.status, headers=error.headers)
