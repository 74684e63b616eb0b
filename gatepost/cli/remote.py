"""The operations through a service, with the credentials of one of its clients. This is the only file that calls it.

Each request has a token with only the scopes that it needs. To change a client, a token must also have the `gatepost:`
scopes of that client: the service names the missing scope in its challenge, and the request is repeated with it.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener, getproxies

import msgspec

from gatepost import __version__
from gatepost.cli import responses
from gatepost.cli.kinds import Kind
from gatepost.cli.profiles import Profile
from gatepost.core.errors import BadSetting, GatepostError, NotFound, Refused, Unavailable
from gatepost.oauth.scopes import RESERVED

TIMEOUT = 30.0  # seconds
_INVALID = ("invalid_request", "invalid_client_metadata", "invalid_redirect_uri")  # a member is missing or invalid
_CHALLENGED_SCOPE = re.compile(r'error="insufficient_scope".*\bscope="([^"]+)"')


class Response(NamedTuple):
    """The response of the service: its status, its header WWW-Authenticate, and its JSON body."""

    status: int
    challenge: str
    body: dict[str, Any]


class RemoteOperations:
    """The operations of the service, for the account of the client."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._tokens: dict[frozenset[str], str] = {}

    @property
    def url(self) -> str:
        return self._profile.remote

    def define(self, kind: Kind, body: dict[str, Any], *, if_missing: bool = False) -> dict[str, Any]:
        if if_missing:
            raise BadSetting("--if-missing needs the store; with --remote, leave it out")
        held = {name for name in str(body.get("scope", "")).split() if name.startswith(RESERVED)}
        response = self._call(kind.path, {kind.operation.scope, *held}, msgspec.json.encode(body))
        return responses.check(response, responses.definition(kind))

    def deliveries(self, query: Mapping[str, str]) -> dict[str, Any]:
        response = self._call(f"/webhooks/deliveries?{urlencode(query)}", {"gatepost:deliveries"})
        page = responses.check(response, responses.page(query))
        if page["next_cursor"] and page["next_cursor"] == query.get("cursor"):  # the pages would never end
            raise Unavailable(responses.NOT_GATEPOST)
        return page

    def request_token(self, scope: str, resource: str = "", *, explain: bool = False) -> dict[str, Any]:
        """Return the response to a token request with client credentials (RFC 6749, section 4.4).

        With `explain`, no token is issued: the response is the decision.
        """
        form = {"grant_type": "client_credentials", "scope": scope} | ({"resource": resource} if resource else {})
        credentials = f"{quote(self._profile.client_id)}:{quote(self._profile.client_secret)}"
        headers = {"Authorization": f"Basic {b64encode(credentials.encode()).decode()}"}
        headers |= {"Prefer": "explain"} if explain else {}
        response = _checked(self._send("/oauth/tokens", headers, urlencode(form).encode()))
        return responses.check(response, responses.Explanation if explain else responses.Token)

    def _call(self, path: str, scopes: set[str], body: bytes | None = None) -> dict[str, Any]:
        response = self._send_with_token(path, scopes, body)
        if response.status == 401:  # the token has expired or was revoked
            self._tokens.clear()
            response = self._send_with_token(path, scopes, body)
        while response.status == 403 and (missing := _missing_scope(response.challenge)) not in {"", *scopes}:
            scopes = {*scopes, missing}
            response = self._send_with_token(path, scopes, body)
        return _checked(response)

    def _send_with_token(self, path: str, scopes: set[str], body: bytes | None) -> Response:
        key = frozenset(scopes)
        if key not in self._tokens:
            self._tokens[key] = self.request_token(" ".join(sorted(scopes)))["access_token"]
        headers = {"Authorization": f"Bearer {self._tokens[key]}"}
        return self._send(path, headers | ({"Content-Type": "application/json"} if body is not None else {}), body)

    def _send(self, path: str, headers: dict[str, str], body: bytes | None) -> Response:
        request = Request(self.url + path, body, headers | {"User-Agent": f"gatepost/{__version__}"})  # noqa: S310 (checked)
        try:
            try:
                answer = _OPENER.open(request, timeout=TIMEOUT)
            except HTTPError as refusal:
                answer = refusal
            with answer:
                challenge = answer.headers.get("WWW-Authenticate", "")
                return Response(answer.status, challenge, responses.decode(answer.read()))
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{self.url} cannot be reached: {getattr(error, 'reason', error)}") from None


class NoRedirects(HTTPRedirectHandler):
    """Credentials go only to the service that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None


# A proxy carries https without reading it. It would read http, which is only for services on this machine.
_OPENER = build_opener(NoRedirects, ProxyHandler({name: url for name, url in getproxies().items() if name == "https"}))


def _missing_scope(challenge: str) -> str:
    found = _CHALLENGED_SCOPE.search(challenge)
    return found[1] if found else ""


def _checked(response: Response) -> dict[str, Any]:
    body = response.body
    if response.status < 300 and body:
        return body
    code = body.get("error") or body.get("code")
    if not isinstance(code, str) and not _is_unavailable(response.status):  # otherwise it may be from a proxy
        raise Unavailable(responses.NOT_GATEPOST)
    detail = body.get("error_description") or body.get("detail") or f"the service responded {response.status}"
    raise error_of(response.status, str(code), str(detail))


def _is_unavailable(status: int) -> bool:
    return status >= 500 or status in (408, 429)


def error_of(status: int, code: str, detail: str) -> GatepostError:
    """Return the error, with its exit code, for the HTTP status and the error code of a refusal."""
    if status < 400 or _is_unavailable(status):
        return Unavailable(detail)
    if status == 404:
        return NotFound(detail)
    detail = detail.replace("send redefine: true to replace it", "`gatepost scope set` changes it")
    return BadSetting(detail) if code in _INVALID else Refused(detail)
