"""Calls of the client, the requests that it must send, and the answers that it gets."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from signing import KEYS

NOW = 1_800_000_000
URL, EVENTS = "https://gatepost.example", "https://ops.gatepost.example"
CLIENT, SECRET = "cli_06gtq7q4h2v9c3b5n7m1k8j6g4", "gps_conformance"
OPENAPI = json.loads((Path(__file__).parents[2] / "gatepost" / "openapi.json").read_text("utf-8"))
VERSION = OPENAPI["info"]["version"]
OPTIONS = {"url": URL, "events_url": EVENTS, "client_id": CLIENT, "client_secret": SECRET}
BASIC = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
REQUEST_ID = "req_06gtq7q4h2v9c3b5n7m1k8j6g4"
LOST = {"connection": "failed"}
GENERATED = "$generated"
# How long to wait before the first, second and third retry, in seconds: at least and at most.
BACKOFF = [[0.25, 0.5], [0.5, 1], [1, 2]]
SCOPES = {
    "define_client": "gatepost:clients",
    "define_scope": "gatepost:scopes",
    "define_webhook_endpoint": "gatepost:endpoints",
    "define_webhook_subscription": "gatepost:subscriptions",
    "read_webhook_deliveries": "gatepost:deliveries",
    "deliveries": "gatepost:deliveries",
    "publish_event": "gatepost:events",
    "publish_events": "gatepost:events",
}
PATHS = {operation["operationId"]: path for path, item in OPENAPI["paths"].items() for operation in item.values()}
Exchange = dict[str, Any]


def ok(body: Any, status: int = 200, **headers: str) -> dict[str, Any]:
    """An answer with JSON."""
    return {"status": status, "headers": headers, "json": body}


def oauth_error(status: int, code: str, **headers: str) -> dict[str, Any]:
    """An error as the paths below /oauth answer with it."""
    body = {"error": code, "error_description": f"The description of {code}."}
    return ok(body, status, **{"x-request-id": REQUEST_ID} | headers)


def problem(status: int, code: str, *errors: dict[str, str], **headers: str) -> dict[str, Any]:
    """An error as the other paths answer with it."""
    body = {"type": "about:blank", "title": "Title", "detail": f"The detail of {code}.", "code": code, "status": status}
    return ok(body | ({"errors": list(errors)} if errors else {}), status, **{"x-request-id": REQUEST_ID} | headers)


def refused(status: int, code: str, message: str, **more: Any) -> dict[str, Any]:
    """The expected error of a call."""
    return {"error": {"status": status, "code": code, "message": message, "request_id": REQUEST_ID} | more}


def token_exchange(
    scope: str, access: str = "token-1", answer: Any = None, resource: str | None = None, **changes: Any
) -> Exchange:
    """A request for a token with client credentials, and its answer."""
    form = {"grant_type": "client_credentials", "scope": scope} | ({"resource": resource} if resource else {})
    issued = {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "scope": scope}
    request = {
        "method": "POST",
        "url": f"{URL}/oauth/tokens",
        "headers": {"authorization": BASIC, "gatepost-version": VERSION},
        "form": form | changes.pop("form", {}),
    } | changes.pop("request", {})
    return {"request": request, "answer": answer or ok(issued | changes)}


def post(operation: str, body: Any, answer: Any, access: str = "token-1", key: str = GENERATED) -> Exchange:
    """A defining request and its answer."""
    headers = {"authorization": f"Bearer {access}", "content-type": "application/json", "gatepost-version": VERSION}
    headers |= {"idempotency-key": key}
    request = {"method": "POST", "url": URL + PATHS[operation], "headers": headers, "json": body}
    return {"request": request, "answer": answer}


def get(query: dict[str, str], answer: Any, access: str = "token-1") -> Exchange:
    """A request for deliveries and its answer."""
    headers = {"authorization": f"Bearer {access}", "idempotency-key": None, "gatepost-version": VERSION}
    url = URL + PATHS["read_webhook_deliveries"]
    return {"request": {"method": "GET", "url": url, "query": query, "headers": headers}, "answer": answer}


def events(body: Any, answer: Any, media: str = "application/cloudevents+json") -> Exchange:
    """A request that publishes, and its answer."""
    headers = {"authorization": "Bearer token-1", "content-type": media}
    return {
        "request": {"method": "POST", "url": f"{EVENTS}/events", "headers": headers, "json": body},
        "answer": answer,
    }


def call(operation: str, expect: Any, *, now: int = NOW, times: int = 1, **arguments: Any) -> dict[str, Any]:
    """A call and its outcome."""
    made = {"now": now, "operation": operation, "arguments": arguments, "expect": expect}
    return made | ({"times": times} if times > 1 else {})


def case(name: str, calls: Any, exchanges: list[Exchange], waits: Any = (), **options: Any) -> dict[str, Any]:
    """A case: a new client, calls to it in this order, and all exchanges with the service in their order."""
    merged = {option: value for option, value in (OPTIONS | options).items() if value is not None}
    calls = calls if isinstance(calls, list) else [calls]
    return {"name": name, "options": merged, "calls": calls, "exchanges": exchanges, "waits": list(waits)}


def cases() -> list[dict[str, Any]]:
    """All cases."""
    return [*_definitions(), *_tokens(), *_deliveries(), *_publishing(), *_retries(), *_errors()]


ENDPOINT = {"url": "https://hooks.example.com/gatepost"}
ENDPOINT_ANSWER = {"id": "ep_06gtq7q4h2v9c3b5n7m1k8j6g4", "url": ENDPOINT["url"], "secret": "whsec_eA=="}
DEFINITIONS: dict[str, tuple[Any, Any]] = {
    "define_client": ({"client_name": "Robot", "grant_types": ["client_credentials"]}, {"client_id": "cli_1"}),
    "define_scope": ({"name": "things:read", "resource": "https://api.example.com"}, {"name": "things:read"}),
    "define_webhook_endpoint": (ENDPOINT, ENDPOINT_ANSWER),
    "define_webhook_subscription": ({"endpoint_id": "ep_1", "events": ["invoice.*"]}, {"id": "sub_1"}),
}


def _endpoint(expect: Any = None, **more: Any) -> dict[str, Any]:
    return call("define_webhook_endpoint", expect or {"result": ENDPOINT_ANSWER}, definition=ENDPOINT, **more)


def _endpoint_post(answer: Any = None, **more: Any) -> Exchange:
    return post("define_webhook_endpoint", ENDPOINT, answer or ok(ENDPOINT_ANSWER, 201), **more)


ENDPOINT_TOKEN = token_exchange("gatepost:endpoints")


def _definitions() -> list[dict[str, Any]]:
    redefinition = {"id": "ep_1", "status": "disabled", "description": None}
    return [
        *[
            case(operation, call(operation, {"result": answer}, definition=body),
                 [token_exchange(SCOPES[operation]), post(operation, body, ok(answer, 201))])
            for operation, (body, answer) in DEFINITIONS.items()
        ],
        case("a redefinition: null removes a member",
             call("define_webhook_endpoint", {"result": ENDPOINT_ANSWER}, definition=redefinition),
             [ENDPOINT_TOKEN, post("define_webhook_endpoint", redefinition, ok(ENDPOINT_ANSWER))]),
        case("an idempotency key of the caller", _endpoint(idempotency_key="order-17"),
             [ENDPOINT_TOKEN, _endpoint_post(key="order-17")]),
        case("a URL with a trailing slash", _endpoint(), [ENDPOINT_TOKEN, _endpoint_post()], url=f"{URL}/"),
        case("scopes that the caller names", _endpoint(),
             [token_exchange("gatepost:clients gatepost:endpoints"), _endpoint_post()],
             scope="gatepost:clients gatepost:endpoints"),
    ]  # fmt: skip


def _tokens() -> list[dict[str, Any]]:
    def token(access: str, now: int = NOW, scope: str = "things:read", **more: Any) -> dict[str, Any]:
        return call("token", {"result": access}, now=now, scope=scope, **more)

    things = token_exchange("things:read")
    again = token_exchange("things:read", "token-2")
    special = "p+s/ x=%"
    quoted = "Basic " + b64encode(f"{CLIENT}:p%2Bs%2F+x%3D%25".encode()).decode()
    assertion = {
        "header": {"typ": "JWT", "alg": "ES256", "kid": KEYS["client"]["kid"]},
        "claims": {"iss": CLIENT, "sub": CLIENT, "aud": URL, "iat": NOW, "exp": NOW + 60},
    }
    keyed: dict[str, Any] = {
        "form": {
            "client_id": CLIENT,
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        },
        "request": {"headers": {"authorization": None, "gatepost-version": VERSION}, "assertion": assertion},
    }
    code = {"grant_type": "authorization_code", "code": "c", "redirect_uri": "https://app.example.com/callback"}
    code_answer = {"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600, "scope": "openid"}
    code_request = token_exchange("", answer=ok(code_answer))
    code_request["request"]["form"] = code
    lost_code = code_request | {"answer": LOST}
    private = {"client_secret": None, "private_key": KEYS["client"]}
    return [
        case("a token is cached", [token("token-1"), token("token-1")], [things]),
        case("calls at the same time share one request", token("token-1", times=5), [things]),
        case("a token is used until a minute before its expiry",
             [token("token-1"), token("token-1", NOW + 3539), token("token-2", NOW + 3540)], [things, again]),
        case("a short token is used until a tenth of its lifetime is left",
             [token("token-1"), token("token-1", NOW + 89), token("token-2", NOW + 90)],
             [token_exchange("things:read", expires_in=100), again]),
        case("one token for each scope and resource",
             [token("token-1"), token("token-2", scope="b"), token("token-3", resource="https://b.example.com"),
              token("token-1")],
             [things, token_exchange("b", "token-2"),
              token_exchange("things:read", "token-3", resource="https://b.example.com")]),
        case("a refused request is not cached",
             [call("token", refused(400, "invalid_scope", "The description of invalid_scope."), scope="things:read"),
              token("token-1")],
             [things | {"answer": oauth_error(400, "invalid_scope")}, things]),
        case("a secret with special characters", token("token-1"),
             [token_exchange("things:read", request={"headers": {"authorization": quoted}})], client_secret=special),
        case("private_key_jwt", token("token-1"), [token_exchange("things:read", **keyed)], **private),
        case("private_key_jwt: a retry has a new assertion", token("token-1"),
             [token_exchange("things:read", answer=LOST, **keyed), token_exchange("things:read", **keyed)],
             BACKOFF[:1], **private),
        case("obtain_token with a code", call("obtain_token", {"result": code_answer}, parameters=code),
             [code_request]),
        case("obtain_token: a code is not sent again",
             call("obtain_token", {"error": {"code": "connection_failed"}}, parameters=code), [lost_code]),
        case("obtain_token: client credentials are sent again",
             call("obtain_token", {"result": things["answer"]["json"]},
                  parameters={"grant_type": "client_credentials", "scope": "things:read"}),
             [things | {"answer": LOST}, things], BACKOFF[:1]),
        *[
            case(f"a response that is not a token: {why}",
                 [call("token", {"error": {"code": "unexpected_response"}}, scope="things:read"), token("token-1")],
                 [things | {"answer": ok(_without_none(things["answer"]["json"] | members))}, things])
            for why, members in _NOT_TOKENS.items()
        ],
        case("a type of the token in lower case", token("token-1"),
             [token_exchange("things:read", answer=ok(things["answer"]["json"] | {"token_type": "bearer"}))]),
        case("an operation whose token request succeeds without a token",
             _endpoint({"error": {"code": "unexpected_response"}}),
             [token_exchange("gatepost:endpoints", answer=ok({"ok": True}))]),
    ]  # fmt: skip


_NOT_TOKENS: dict[str, dict[str, Any]] = {
    "no access_token": {"access_token": None},
    "an empty access_token": {"access_token": ""},
    "an access_token that is a number": {"access_token": 1},
    "no token_type": {"token_type": None},
    "another token_type": {"token_type": "DPoP"},
    "a token_type that is a list": {"token_type": ["Bearer"]},
    "no expires_in": {"expires_in": None},
    "an expires_in that is text": {"expires_in": "3600"},
    "an expires_in that is true": {"expires_in": True},
    "an expires_in of 0": {"expires_in": 0},
    "an expires_in that is negative": {"expires_in": -1},
    "an expires_in that is a fraction": {"expires_in": 0.5},
    "an expires_in of 2^31": {"expires_in": 2**31},
    "an expires_in of 10^300": {"expires_in": 1e300},
}


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _deliveries() -> list[dict[str, Any]]:
    token = token_exchange("gatepost:deliveries")

    def page(cursor: str | None, *ids: str) -> dict[str, Any]:
        return ok({"data": [{"id": each} for each in ids], "next_cursor": cursor})

    query = {"status": "failed", "created_after": "2027-01-01T00:00:00+01:00", "limit": 2}
    sent = {"status": "failed", "created_after": "2027-01-01T00:00:00+01:00", "limit": "2"}
    summary = {"data": [], "total": {"success_ratio": None}, "now": {"pending": 0}}
    return [
        case("one page", call("read_webhook_deliveries", {"result": page("c1", "dlv_1")["json"]}, query=query),
             [token, get(sent, page("c1", "dlv_1"))]),
        case("a summary",
             call("read_webhook_deliveries", {"result": summary}, query={"view": "summary", "interval": "day"}),
             [token, get({"view": "summary", "interval": "day"}, ok(summary))]),
        case("all deliveries of three pages, of which one is empty",
             call("deliveries", {"items": [{"id": "dlv_1"}, {"id": "dlv_2"}, {"id": "dlv_3"}]}, query=query),
             [token, get(sent, page("c+1", "dlv_1", "dlv_2")), get(sent | {"cursor": "c+1"}, page("c2")),
              get(sent | {"cursor": "c2"}, page(None, "dlv_3"))]),
        case("no deliveries", call("deliveries", {"items": []}, query={}), [token, get({}, page(None))]),
        case("deliveries: a retry in the middle", call("deliveries", {"items": [{"id": "1"}, {"id": "2"}]}, query={}),
             [token, get({}, page("c1", "1")), get({"cursor": "c1"}, problem(503, "temporarily_unavailable")),
              get({"cursor": "c1"}, page(None, "2"))], BACKOFF[:1]),
        case("deliveries: an error after the first page",
             call("deliveries", {"items": [{"id": "1"}]} | refused(400, "invalid_request", "The detail of "
                  "invalid_request."), query={}),
             [token, get({}, page("c1", "1")), get({"cursor": "c1"}, problem(400, "invalid_request"))]),
    ]  # fmt: skip


def _publishing() -> list[dict[str, Any]]:
    token = token_exchange("gatepost:events")
    event = {"type": "invoice.paid", "source": "/billing", "id": "17-paid", "data": {"invoice": 17}}
    sent = {"specversion": "1.0"} | event
    answer = {"id": "evt_1", "type": "invoice.paid", "at": "2027-01-15T08:00:00.000Z", "matched": 1,
              "deliveries": ["dlv_1"], "again": False}  # fmt: skip
    no_id = {name: value for name, value in event.items() if name != "id"}
    batch = "application/cloudevents-batch+json"
    return [
        case("publish an event", call("publish_event", {"result": answer}, event=event),
             [token, events(sent, ok(answer))]),
        case("publish an event without an id: every attempt has the same generated id",
             call("publish_event", {"result": answer}, event=no_id),
             [token, events(sent | {"id": GENERATED}, LOST), events(sent | {"id": GENERATED}, ok(answer))],
             BACKOFF[:1]),
        case("publish several events", call("publish_events", {"result": [answer]}, events=[event]),
             [token, events([sent], ok({"data": [answer]}), batch)]),
        case("publish: a conflict",
             call("publish_event", refused(409, "conflict", "The detail of conflict."), event=event),
             [token, events(sent, problem(409, "conflict"))]),
        case("publish without the URL of the operations plane",
             call("publish_event", {"error": {"code": "events_url_missing"}}, event=event), [], events_url=None),
    ]  # fmt: skip


def _retries() -> list[dict[str, Any]]:
    def answered(name: str, answers: list[Any], waits: Any, expect: Any = None) -> dict[str, Any]:
        return case(name, _endpoint(expect), [ENDPOINT_TOKEN, *[_endpoint_post(each) for each in answers]], waits)

    busy = problem(503, "temporarily_unavailable")
    limited = problem(429, "too_many_requests", **{"retry-after": "7"})
    message = "The detail of temporarily_unavailable."
    return [
        answered("503, then success", [busy, None], BACKOFF[:1]),
        answered("429 with Retry-After in seconds", [limited, None], [[7, 7]]),
        answered("503 with Retry-After as a date",
                 [problem(503, "temporarily_unavailable", **{"retry-after": "Fri, 15 Jan 2027 08:00:05 GMT"}), None],
                 [[5, 5]]),
        answered("Retry-After in the past",
                 [problem(503, "temporarily_unavailable", **{"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}), None],
                 [[0, 0]]),
        answered("Retry-After that is neither",
                 [problem(503, "temporarily_unavailable", **{"retry-after": "soon"}), None], BACKOFF[:1]),
        answered("Retry-After of more than a minute is not waited for",
                 [problem(429, "too_many_requests", **{"retry-after": "61"})], [],
                 refused(429, "too_many_requests", "The detail of too_many_requests.", retry_after=61)),
        answered("a connection that failed, with the same idempotency key", [LOST, None], BACKOFF[:1]),
        answered("four attempts at most", [busy] * 4, BACKOFF, refused(503, "temporarily_unavailable", message)),
        answered("four connections at most", [LOST] * 4, BACKOFF, {"error": {"code": "connection_failed"}}),
        answered("different failures, then success", [LOST, limited, busy, None], [BACKOFF[0], [7, 7], BACKOFF[2]]),
        answered("500 is not tried again", [problem(500, "internal_error")], [],
                 refused(500, "internal_error", "The detail of internal_error.")),
        case("the token request is tried again, too", _endpoint(),
             [token_exchange("gatepost:endpoints", answer=oauth_error(503, "temporarily_unavailable")),
              ENDPOINT_TOKEN, _endpoint_post()], BACKOFF[:1]),
        case("401: once more with a new token", [_endpoint(), _endpoint()],
             [ENDPOINT_TOKEN, _endpoint_post(problem(401, "invalid_token")),
              token_exchange("gatepost:endpoints", "token-2"), _endpoint_post(access="token-2"),
              _endpoint_post(access="token-2")]),
        case("401: not a third time",
             _endpoint(refused(401, "invalid_token", "The detail of invalid_token.")),
             [ENDPOINT_TOKEN, _endpoint_post(problem(401, "invalid_token")),
              token_exchange("gatepost:endpoints", "token-2"),
              _endpoint_post(problem(401, "invalid_token"), access="token-2")]),
    ]  # fmt: skip


def _errors() -> list[dict[str, Any]]:
    wrong = {"pointer": "/url", "detail": "The URL must begin with https://."}
    body = DEFINITIONS["define_client"][0]
    html = {"status": 502, "headers": {"content-type": "text/html"}, "text": "<h1>Bad gateway</h1>"}
    unexpected = {"error": {"code": "unexpected_response", "status": 502}}
    return [
        case("a problem with errors",
             _endpoint(refused(400, "invalid_request", "The detail of invalid_request.", errors=[wrong])),
             [ENDPOINT_TOKEN, _endpoint_post(problem(400, "invalid_request", wrong))]),
        case("an error of OAuth",
             call("define_client", refused(400, "invalid_client_metadata", "The description of "
                  "invalid_client_metadata."), definition=body),
             [token_exchange("gatepost:clients"),
              post("define_client", body, oauth_error(400, "invalid_client_metadata"))]),
        case("a failed client authentication",
             _endpoint(refused(401, "invalid_client", "The description of invalid_client.")),
             [token_exchange("gatepost:endpoints", answer=oauth_error(401, "invalid_client"))]),
        case("an error that is not JSON", _endpoint(unexpected), [ENDPOINT_TOKEN, _endpoint_post(html)]),
        case("a redirect is not followed",
             _endpoint({"error": {"code": "unexpected_response", "status": 307}}),
             [ENDPOINT_TOKEN, _endpoint_post({"status": 307, "headers": {"location": "https://x.example/"},
                                              "text": ""})]),
        case("a success that is not JSON", _endpoint({"error": {"code": "unexpected_response", "status": 200}}),
             [ENDPOINT_TOKEN, _endpoint_post({"status": 200, "headers": {}, "text": "ok"})]),
    ]  # fmt: skip
