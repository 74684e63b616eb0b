"""Data nobody thought of: generated from the service's own openapi.json, right and wrong, and sent to it."""

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import CheckContext, Response

from gatepost import ids, openapi
from gatepost.scopes import OPERATIONS
from tests.service import Client, Service

Case = schemathesis.Case[Any]
CHECKS = [
    "content_type_conformance",
    "negative_data_rejection",
    "response_headers_conformance",
    "response_schema_conformance",
    "status_code_conformance",
]
# What no schema can say of a valid body: whether a name is known here, a key is a point on its curve, or a whole is
# consistent. Only these members may be at fault in one.
SEMANTIC = ("claims", "grants", "jwks", "resource", "scope", "serves")

described = schemathesis.openapi.from_dict(openapi.document())
described.config.generation.update(with_security_parameters=False, allow_x00=False)
described.config.checks.negative_data_rejection.expected_statuses = ["4xx", "501"]


def test_the_service_shows_the_document_that_is_tested_here(sqlite_gatepost: Service) -> None:
    assert sqlite_gatepost.session.get(f"{sqlite_gatepost.ops}/openapi.json").json() == openapi.document()


@pytest.fixture(scope="module")
def first(sqlite_gatepost: Service) -> Client:
    return sqlite_gatepost.account("schemathesis")[1]


@pytest.fixture(scope="module")
def authorization(sqlite_gatepost: Service, first: Client) -> Callable[[str], str]:
    """The right credentials for the operation at a path."""
    bearer = f"Bearer {sqlite_gatepost.token(first, ' '.join(OPERATIONS))}"
    return lambda path: first.basic if path == "/oauth/tokens" else bearer


@pytest.fixture(scope="module")
def spare(sqlite_gatepost: Service, first: Client) -> Client:
    """A client to be redefined: no generator guesses an id."""
    return sqlite_gatepost.define_client(sqlite_gatepost.token(first, "gatepost:clients"))


@described.parametrize()
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(
    case: Case, sqlite_gatepost: Service, authorization: Callable[[str], str], spare: Client
) -> None:
    if isinstance(case.body, dict) and ids.parse("cli", str(case.body.get("client_id"))):
        case.body["client_id"] = spare.id
    if str(case.headers.get("Idempotency-Key", "")).isalnum():
        case.headers["Idempotency-Key"] = ids.new("key")  # of its own: else most cases are 422, whatever the body is
    checks: list[Any] = schemathesis.checks.CHECKS.get_by_names(CHECKS)
    case.call_and_validate(
        base_url=sqlite_gatepost.url,
        headers={"Authorization": authorization(case.path)},
        checks=[*checks, no_server_error, valid_bodies_are_accepted],
    )


def no_server_error(_context: CheckContext, response: Response, case: Case) -> bool | None:
    """Every bad input is a 4xx. The webhook area, which is to come, says so by 501."""
    to_come = case.path.startswith("/webhooks/") and response.status_code == 501
    assert response.status_code < 500 or to_come, response.text
    return None


def valid_bodies_are_accepted(_context: CheckContext, response: Response, case: Case) -> bool | None:
    """Unless what is wrong is beyond a schema. Not at the token endpoint, where the client's scopes decide."""
    body = case.body
    if not _is_valid(case) or not isinstance(body, dict) or case.path == "/oauth/tokens" or response.status_code != 400:
        return None
    told = response.json()["error_description"]
    member = told.lstrip("/").replace("/", ":").partition(":")[0]
    written_as_float = _has_float(body.get(member))  # JSON Schema takes 60.0 for an integer
    redefined = "client_id" in body  # together with what the client has, valid members may make an invalid whole
    impossible = told.endswith(("is not a URI", "beyond 64 bits"))  # port 99999, or [1:2] for an address
    assert member in SEMANTIC or written_as_float or redefined or impossible, told
    return None


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_float(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def _is_valid(case: Case) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive
