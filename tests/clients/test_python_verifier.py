"""Access tokens of a running service, verified by the Python client alone and in web frameworks."""

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import unquote

import django
import flask
import pytest
from django.conf import settings
from fastapi import Depends, FastAPI
from werkzeug.datastructures import Headers

from gatepost_client import AccessToken, Client, ClientSecret, ProofKey, RequestCredentials, TokenError, TokenVerifier
from gatepost_client import django as for_django
from gatepost_client import flask as for_flask
from gatepost_client import starlette as for_starlette
from gatepost_client.access_tokens import CHECKS
from tests.clients.conftest import Platform
from tests.receiver import receiver

BASE = "https://api.example.com"
URL = f"{BASE}/invoices"


@pytest.fixture
def verifier(platform: Platform) -> TokenVerifier:
    return TokenVerifier(platform.service.url, platform.resource)


@pytest.fixture
def robot(platform: Platform) -> ClientSecret:
    made = platform.client.define_client(
        {
            "client_name": "Robot",
            "grant_types": ["client_credentials"],
            "scope": "invoices:read invoices:write",
            "claims": {"department": "billing"},
        }
    )
    return ClientSecret(made["client_id"], made["client_secret"])


@pytest.fixture
def bearer(platform: Platform, robot: ClientSecret) -> Iterator[Client]:
    with Client(platform.service.url, robot) as client:
        yield client


@pytest.fixture
def bound(platform: Platform, robot: ClientSecret) -> Iterator[Client]:
    with Client(platform.service.url, robot, proof_key=ProofKey()) as client:
        yield client


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
def test_tokens_of_every_algorithm(
    platform: Platform, verifier: TokenVerifier, bearer: Client, robot: ClientSecret, algorithm: str
) -> None:
    platform.service.cli("account", "set", platform.name, f"signing_alg={algorithm}")
    headers = bearer.headers("GET", URL, "invoices:read")
    token = verifier.verify(headers["Authorization"], scopes=["invoices:read"], account=platform.account)
    assert token.subject == token.client_id == robot.client_id
    assert token.account == platform.account
    assert token.scopes == {"invoices:read"}
    assert token.audience == (platform.resource,)
    assert token.claims["department"] == "billing"
    assert token.actor is None
    assert token == asyncio.run(verifier.verify_async(headers["Authorization"]))
    other = next(each for each in ("ES256", "RS256") if each != algorithm)
    with pytest.raises(TokenError, match="algorithm") as raised:
        TokenVerifier(platform.service.url, platform.resource, algorithms=[other]).verify(headers["Authorization"])
    assert raised.value.check == "alg"


def test_bound_tokens(verifier: TokenVerifier, bound: Client) -> None:
    headers = bound.headers("POST", URL, "invoices:write")
    credentials = RequestCredentials(headers["Authorization"], headers["DPoP"], "POST", f"{URL}?a=b")
    assert verifier.verify(credentials).scopes == {"invoices:write"}
    for changed, check in (
        (credentials, "dpop_jti"),
        (RequestCredentials(headers["Authorization"].replace("DPoP", "Bearer")), "dpop_scheme"),
        (RequestCredentials(headers["Authorization"], None, "POST", URL), "dpop_proof"),
        (RequestCredentials(headers["Authorization"], headers["DPoP"], "GET", URL), "dpop_htm"),
        (RequestCredentials(headers["Authorization"], headers["DPoP"], "POST", BASE), "dpop_htu"),
    ):
        with pytest.raises(TokenError) as raised:
            verifier.verify(changed)
        assert raised.value.check == check
        assert headers["Authorization"].split(" ")[1] not in str(raised.value) + repr(raised.value.headers)


def test_other_tokens_of_the_service(platform: Platform, verifier: TokenVerifier) -> None:
    """A token for the operations of Gatepost is for another audience."""
    with pytest.raises(TokenError) as raised:
        verifier.verify(f"Bearer {platform.client.token('gatepost:clients')}")
    assert raised.value.check == "aud"


def test_no_key_set_at_first(bearer: Client, platform: Platform) -> None:
    authorization = bearer.headers("GET", URL, "invoices:read")["Authorization"]
    keys = platform.service.session.get(f"{platform.service.url}/oauth/jwks").content
    with receiver([(503, {}, b""), (200, {}, b"[]"), (200, {}, keys), (200, {}, b'{"keys": []}')]) as issuer:
        verifier = TokenVerifier(platform.service.url, platform.resource, jwks_uri=issuer.url)
        for _ in range(2):
            with pytest.raises(TokenError) as raised:
                verifier.verify(authorization)
            assert (raised.value.check, raised.value.status, raised.value.www_authenticate) == ("keys", 503, "")
        assert verifier.verify(authorization).account == platform.account
        assert verifier.verify(authorization).account == platform.account
        assert len(issuer.requests) == 3


def test_bad_options() -> None:
    for arguments, message in (
        (("gatepost.example", "a"), "issuer: must be a URL"),
        (("https://gatepost.example", ""), "audience"),
    ):
        with pytest.raises(ValueError, match=message):
            TokenVerifier(*arguments)
    for algorithms in ([], ["none"], ["HS256"]):
        with pytest.raises(ValueError, match="algorithms: must be some of ES256"):
            TokenVerifier("https://gatepost.example", "a", algorithms=algorithms)


# --- web frameworks. Each application is `call(method, headers)`, which returns status, headers and JSON.


def fastapi_app(verifier: TokenVerifier) -> Any:
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def invoices(
        token: Annotated[AccessToken, Depends(for_starlette.require(verifier, "invoices:read", base_url=BASE))],
    ) -> dict[str, str]:
        return {"client": token.client_id}

    def call(method: str, headers: dict[str, str], path: str = "/invoices") -> tuple[int, Any, Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        address = {
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        asyncio.run(app({"type": "http", "method": method, "headers": fields, **address}, receive, send))
        received = Headers([(name.decode(), value.decode()) for name, value in sent[0]["headers"]])
        return sent[0]["status"], received, json.loads(sent[1]["body"])

    return call


def flask_app(verifier: TokenVerifier) -> Any:
    app = flask.Flask(__name__)

    @app.route("/<path:path>", methods=["GET", "POST"])
    @for_flask.require(verifier, "invoices:read", base_url=BASE)
    def invoices(path: str) -> dict[str, str]:
        return {"client": flask.g.access_token.client_id}

    def call(method: str, headers: dict[str, str], path: str = "/invoices") -> tuple[int, Any, Any]:
        answer = app.test_client().open(path, method=method, headers=headers)
        return answer.status_code, answer.headers, answer.get_json()

    return call


def django_view(verifier: TokenVerifier) -> Any:
    prepare_django()
    from django.http import JsonResponse
    from django.test import RequestFactory

    @for_django.require(verifier, "invoices:read", base_url=BASE)
    def invoices(request: Any) -> Any:
        return JsonResponse({"client": request.access_token.client_id})

    def call(method: str, headers: dict[str, str], path: str = "/invoices") -> tuple[int, Any, Any]:
        answer = invoices(RequestFactory().generic(method, path, headers=headers))
        return answer.status_code, answer.headers, json.loads(answer.content)

    return call


def django_async_view(verifier: TokenVerifier) -> Any:
    prepare_django()
    from django.core.handlers.asgi import ASGIRequest
    from django.http import JsonResponse

    @for_django.require(verifier, "invoices:read", base_url=BASE)
    async def invoices(request: Any) -> Any:
        return JsonResponse({"client": request.access_token.client_id})

    def call(method: str, headers: dict[str, str], path: str = "/invoices") -> tuple[int, Any, Any]:
        fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": unquote(path), "headers": fields, "scheme": "http"}
        answer = asyncio.run(invoices(ASGIRequest(scope, io.BytesIO())))
        return answer.status_code, answer.headers, json.loads(answer.content)

    return call


def prepare_django() -> None:
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"])
        django.setup()


@pytest.mark.parametrize("make", [fastapi_app, flask_app, django_view, django_async_view])
def test_frameworks(make: Any, verifier: TokenVerifier, robot: ClientSecret, bearer: Client, bound: Client) -> None:
    call = make(verifier)
    reading = bearer.headers("GET", URL, "invoices:read")
    status, _, body = call("GET", reading)
    assert (status, body) == (200, {"client": robot.client_id})

    status, headers, _ = call("GET", {})
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    status, headers, body = call("GET", bearer.headers("GET", URL, "invoices:write"))
    assert status == CHECKS["scope"].status == 403
    assert 'error="insufficient_scope"' in headers["WWW-Authenticate"]
    assert 'scope="invoices:read"' in headers["WWW-Authenticate"]
    assert headers["Cache-Control"] == "no-store"

    assert call("POST", bound.headers("POST", URL, "invoices:read"))[0] == 200
    path = "/inv%C3%B6ices/17%20;a:b/@x"
    assert call("GET", bound.headers("GET", BASE + path, "invoices:read"), path)[0] == 200
    wrong = bound.headers("GET", URL, "invoices:read")
    status, headers, _ = call("POST", wrong)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith('DPoP error="invalid_dpop_proof"')
    assert call("GET", wrong | {"DPoP": f"{wrong['DPoP']},{wrong['DPoP']}"})[0] == 401
