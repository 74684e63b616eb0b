"""Access tokens in Flask.

@app.get("/invoices")
@require(verifier, "invoices:read")
def invoices() -> list[Invoice]:
    token = g.access_token
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from flask import abort, current_app, g, jsonify, request

from gatepost_client.access_tokens import RequestCredentials, TokenVerifier
from gatepost_client.dpop import request_url
from gatepost_client.errors import TokenError

P = ParamSpec("P")
R = TypeVar("R")


def require(
    verifier: TokenVerifier, *scopes: str, account: str | None = None, base_url: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for views: the access token must have all of these scopes. The view finds it in `g.access_token`.

    Any other request is refused with the status and the challenge that belong to the failed check. `base_url` is the
    public URL of the API, for DPoP proofs; set it behind a proxy that does not pass on the host.
    """

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            url = request_url(base_url or request.host_url, request.script_root + request.path)
            headers = request.headers
            credentials = RequestCredentials(
                headers.getlist("Authorization"), headers.getlist("DPoP"), request.method, url
            )
            try:
                g.access_token = verifier.verify(credentials, scopes=scopes, account=account)
            except TokenError as error:
                response = jsonify(error.body)
                response.status_code = error.status
                response.headers.update(error.headers)
                abort(response)
            return cast(R, current_app.ensure_sync(view)(*args, **kwargs))

        return checked

    return decorate
