"""Valid and invalid requests that are generated from openapi.json and sent to the service."""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import CheckContext, Response
from schemathesis.core.result import Ok
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test

from gatepost.accounts import lookup
from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.ledger import publishable
from gatepost.ledger.entries import Origin
from gatepost.ledger.operations import OPERATIONS
from gatepost.store.transaction import Tx
from gatepost.web import openapi
from gatepost.web.deliveries import VIEWS
from gatepost.webhooks import publish as units
from gatepost.webhooks.publish import Published
from tests.receiver import OK, receiver
from tests.service import Client, Service
from tests.waiting import LIMIT

Case = schemathesis.Case[Any]
ACCOUNT = "schemathesis"
CHECKS = [
    "content_type_conformance",
    "negative_data_rejection",
    "response_headers_conformance",
    "response_schema_conformance",
    "status_code_conformance",
]
# What no schema can say of a valid body: whether a name is known here, a key is a point on its curve, an address is one
# that may be asked, or a whole is consistent. Only these members may be at fault in one.
SEMANTIC = ("claims", "grants", "jwks", "jwks_uri", "resource", "scope", "serves")


@cache
def described() -> dict[str, Any]:
    """Every operation by its label."""
    document = openapi.document()
    # The generator gives up on a schema with too many alternatives: here every client has the redirect URIs of a web
    # application. tests/unit/test_openapi.py compares the whole schema with the rules.
    rules = document["components"]["schemas"]["ClientRegistration"]["allOf"]
    [rules[0]] = [each for each in rules[0]["anyOf"] if "redirect_uris" in each["properties"]]
    # Making an event type that is too long takes it ten seconds; tests/unit/test_subscriptions.py has one.
    for name in ("SubscriptionCreation", "SubscriptionRedefinition"):
        del document["components"]["schemas"][name]["properties"]["events"]["items"]["maxLength"]
    found = schemathesis.openapi.from_dict(document)
    found.config.generation.update(with_security_parameters=False, allow_x00=False)
    found.config.checks.negative_data_rejection.expected_statuses = ["4xx"]
    operations: Any = [each.ok() for each in found.get_all_operations() if isinstance(each, Ok)]
    return {each.label: each for each in operations}


class Spare(NamedTuple):
    """What is there to be redefined or found: no generator guesses an id."""

    client: str
    endpoint: str
    subscription: str
    event: str
    delivery: str


def test_the_service_shows_the_document_that_is_tested_here(sqlite_gatepost: Service) -> None:
    assert sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/openapi.json").json() == openapi.document()


@pytest.fixture(scope="module")
def first(sqlite_gatepost: Service) -> Client:
    return sqlite_gatepost.account(ACCOUNT, "max_endpoints=10000", "max_subscriptions=10000")[1]


@pytest.fixture(scope="module")
def token(sqlite_gatepost: Service, first: Client) -> str:
    return sqlite_gatepost.token(first, " ".join(OPERATIONS))


@pytest.fixture(scope="module")
def authorization(first: Client, token: str) -> Callable[[str], str]:
    """The right credentials for the operation at a path."""
    return lambda path: first.basic if path == "/oauth/tokens" else f"Bearer {token}"


# Nothing is sent anywhere: endpoints are disabled, and if one were not, its port is closed.
NOWHERE = {"url": "http://127.0.0.1:1024/x", "status": "disabled"}


@pytest.fixture(scope="module")
def spare(sqlite_gatepost: Service, token: str) -> Spare:
    client = sqlite_gatepost.define_client(token).id
    endpoint, subscription = _subscribe(sqlite_gatepost, token, NOWHERE)
    published = _publish(sqlite_gatepost, ACCOUNT)
    return Spare(client, endpoint, subscription, published.entry.name, published.deliveries[0])


def _publish(service: Service, account: str) -> Published:
    event = publishable.event("invoice.paid", {"customer": {"country": "NL"}})
    assert isinstance(event, publishable.Event)

    def unit(tx: Tx) -> Published | Refusal:
        return units.publish_event(tx, lookup.named(tx, account), event, Origin("operator"))

    published = service.opened.store.run_now(unit)
    assert isinstance(published, Published)
    return published


def _subscribe(service: Service, token: str, endpoint: dict[str, Any]) -> tuple[str, str]:
    """An endpoint, and a subscription for it."""
    made = service.post("/webhooks/endpoints", token, endpoint)
    assert made.status_code == 201, made.text
    subscribed = service.post(
        "/webhooks/subscriptions", token, {"endpoint_id": made.json()["id"], "events": ["invoice.*"]}
    )
    assert subscribed.status_code == 201, subscribed.text
    return made.json()["id"], subscribed.json()["id"]


AS_FAR = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("label", described())
def test_every_answer_is_as_described(
    sqlite_gatepost: Service, authorization: Callable[[str], str], spare: Spare, label: str
) -> None:
    """What `schema.parametrize()` builds, but not while tests are collected: that is long, and in each process."""

    @AS_FAR
    def send(case: Case) -> None:
        _send(case, sqlite_gatepost, authorization, spare)

    schemathesis.checks.load_all_checks()
    operation = described()[label]
    config = operation.schema.config
    build_operation_test(
        config=config, operation=operation, test_func=send, given_kwargs={}, feedback=FeedbackSources()
    )()


def _send(case: Case, sqlite_gatepost: Service, authorization: Callable[[str], str], spare: Spare) -> None:
    if isinstance(case.body, dict):
        _aim(case, case.body, spare)
    if case.query and _is_valid(case):
        _fit(case.query, spare)
    if str(case.headers.get("Idempotency-Key", "")).isalnum():
        case.headers["Idempotency-Key"] = ids.new("key")  # a new one, because most cases would otherwise be 422
    checks: list[Any] = schemathesis.checks.CHECKS.get_by_names(CHECKS)
    case.call_and_validate(
        base_url=sqlite_gatepost.url,
        session=sqlite_gatepost.session,  # a connection for each of the thousands of requests takes its time
        headers={"Authorization": authorization(case.path)},
        checks=[*checks, no_server_error, valid_bodies_are_accepted, valid_queries_are_answered],
    )


def _aim(case: Case, body: dict[str, Any], spare: Spare) -> None:
    """Use existing ids. Valid requests send nothing to other hosts and do not remove the objects of the test."""
    _put_known(body, spare)
    if _is_valid(case) and case.path == "/webhooks/endpoints":
        body |= NOWHERE
    elif _is_valid(case) and body.get("status") == "removed":
        body["status"] = "disabled"


def _fit(query: dict[str, Any], spare: Spare) -> None:
    """Parameters that go together: no schema says which view takes which."""
    _put_known(query, spare)
    query.pop("cursor", None)  # a generated cursor is never valid
    for name in set(query) - {"view", *VIEWS[query.get("view", "deliveries")]}:
        del query[name]


def _put_known(members: dict[str, Any], spare: Spare) -> None:
    for prefix, known in zip(("cli", "ep", "sub", "evt", "dlv"), spare, strict=True):
        for member in ("id", "client_id", "endpoint_id", "subscription_id", "event_id"):
            if ids.parse(prefix, str(members.get(member))):
                members[member] = known


def no_server_error(_context: CheckContext, response: Response, _case: Case) -> bool | None:
    """Every bad input is a 4xx."""
    assert response.status_code < 500, response.text
    return None


def valid_bodies_are_accepted(_context: CheckContext, response: Response, case: Case) -> bool | None:
    """Unless what is wrong is beyond a schema. Not at the token endpoint, where the client's scopes decide."""
    body = case.body
    refused = response.status_code in (400, 404)
    if not refused or not _is_valid(case) or not isinstance(body, dict) or case.path == "/oauth/tokens":
        return None
    answer = response.json()
    result = answer.get("error_description") or answer["detail"]
    member = result.lstrip("/").replace("/", ":").partition(":")[0]
    written_as_float = _has_float(body.get(member))  # JSON Schema takes 60.0 for an integer
    redefined = "client_id" in body  # together with what the client has, valid members may make an invalid whole
    impossible = result.endswith(("is not a URI", "beyond 64 bits"))  # port 99999, or [1:2] for an address
    empty = result in ("replay: from must be before until", "replay: from must not be in the future")
    assert member in SEMANTIC or written_as_float or redefined or impossible or empty, result
    return None


def valid_queries_are_answered(_context: CheckContext, response: Response, case: Case) -> bool | None:
    """Unless the range of a summary is empty or too long."""
    if case.query and _is_valid(case) and response.status_code != 200:
        assert response.json()["detail"].startswith("created_after: "), response.text
    return None


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_float(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def _is_valid(case: Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


# --- responses have only documented members


def _closed(schema: Any) -> Any:
    """The same schema, but what it does not describe is wrong."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _closed(each) for name, each in schema.items()}
    return {"additionalProperties": False} | made if "properties" in schema else made


def _as_described(name: str, shown: Any) -> None:
    schemas = {each: _closed(openapi.document()["components"]["schemas"][each]) for each in ANSWERS}
    reference = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    jsonschema_rs.Draft202012Validator(reference, validate_formats=True).validate(shown)


ANSWERS = ("Endpoint", "EndpointPage", "Subscription", "Delivery", "DeliveryPage", "DeliverySummary")
# What a list of endpoints shows of each beside its definition.
LISTED = openapi.document()["components"]["schemas"]["EndpointPage"]["properties"]["data"]["items"]["allOf"][1]


@pytest.fixture
def own_token(sqlite_gatepost: Service, account_name: str) -> str:
    """Of an account in which nothing else happens."""
    _, client = sqlite_gatepost.account(account_name)
    return sqlite_gatepost.token(client, " ".join(OPERATIONS))


@pytest.mark.parametrize("signing", ["v1", "v1a"])
def test_definitions_show_nothing_undescribed(sqlite_gatepost: Service, own_token: str, signing: str) -> None:
    body = NOWHERE | {"signing": signing, "headers": {"x-token": "a"}, "rate_limit": 1, "retry_schedule": [5]}
    made = sqlite_gatepost.post("/webhooks/endpoints", own_token, body).json()
    assert "secret" in made
    _as_described("Endpoint", made)
    body = {"endpoint_id": made["id"], "events": ["invoice.*"], "filter": {"/a": 1}, "replay": {"only": "failed"}}
    subscribed = sqlite_gatepost.post("/webhooks/subscriptions", own_token, body).json()
    assert subscribed["replay"]["state"] == "running"
    _as_described("Subscription", subscribed)


def test_deliveries_show_nothing_undescribed(sqlite_gatepost: Service, account_name: str, own_token: str) -> None:
    """Of one that is held, one that succeeded, one that failed, and one that is to be tried again."""
    with receiver(OK) as good, receiver((503, {"Retry-After": "3600"}, b"later")) as busy:
        last = {"url": busy.url, "retry_schedule": []}
        for endpoint in (NOWHERE, {"url": good.url}, {"url": busy.url}, last):
            _subscribe(sqlite_gatepost, own_token, endpoint)
        _publish(sqlite_gatepost, account_name)
        page = _when_tried(sqlite_gatepost, own_token)
    _as_described("DeliveryPage", page)
    assert all("payload" in each for each in page["data"])
    summary = _read(sqlite_gatepost, own_token, view="summary", interval="day")
    assert (summary["total"]["attempts"]["2xx"], summary["total"]["attempts"]["5xx"]) == (1, 2)
    _as_described("DeliverySummary", summary)
    endpoints = _read(sqlite_gatepost, own_token, view="endpoints")
    assert len(endpoints["data"]) == 4
    for endpoint in endpoints["data"]:
        listed = {name: endpoint.pop(name) for name in LISTED["properties"]}
        _as_described("EndpointPage/properties/data/items/allOf/1", listed)
        _as_described("Endpoint", endpoint)


def _read(service: Service, token: str, **query: str) -> dict[str, Any]:
    bearer = {"Authorization": f"Bearer {token}"}
    answer = service.session.get(f"{service.url}/webhooks/deliveries", params=query, headers=bearer)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _when_tried(service: Service, token: str) -> dict[str, Any]:
    """The deliveries, once each that is not held has had its attempt."""
    wanted = [("failed", 1), ("held", 0), ("pending", 1), ("succeeded", 1)]
    deadline = time.monotonic() + LIMIT
    while True:
        page = _read(service, token, include="payload,responses")
        seen = sorted((each["status"], len(each["attempts"])) for each in page["data"])
        if seen == wanted:
            return page
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
