"""What the pages about login, workloads and bound tokens state is what the code does."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gatepost.core import jwk_sets
from gatepost.oauth import clients
from gatepost.oauth.authorize import handoff, request
from gatepost.oauth.authorize.request import Authorization
from tests import service
from tests.docs.pages import DEFAULT_URL, DOCS, HOW_TO, first_column, json_blocks, prose, rows
from tests.docs.reader import Reader
from tests.examples.programs import LOGIN_PORT, take_along
from tests.service import free_ports

LOGIN = HOW_TO / "connect-a-login.md"
WORKLOADS = HOW_TO / "workload-identity.md"
BINDING = HOW_TO / "bind-tokens-to-keys.md"
EXPLAINED = DOCS / "explanation" / "login-without-a-login-ui.md"

pytestmark = pytest.mark.xdist_group("example-pages")


@pytest.fixture(scope="module")
def port() -> str:
    """Where the login application is."""
    return str(free_ports(1)[0])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, port: str) -> Iterator[Reader]:
    """Who has read the tutorial, and has the examples."""
    directory = tmp_path_factory.mktemp("reader")
    with service.running(directory / "gatepost-data") as running:
        take_along(directory / "examples", {LOGIN_PORT: port, DEFAULT_URL: running.url})
        yield Reader(directory, running)


def test_http_needs_dev(reader: Reader) -> None:
    without = {name: value for name, value in reader.service.environment.items() if name != "GATEPOST_DEV"}
    done = replace(reader.service, environment=without).cli(
        "account", "set", "default", "login_url=http://127.0.0.1:8090/login", check=False
    )
    assert done.returncode != 0
    assert "http on loopback with --dev" in done.stderr


def members(heads: str) -> set[str]:
    return {name for row in rows(LOGIN, heads, "description") for name in re.findall(r"`(\w+)`", row[0])}


def test_the_interaction_is_as_told() -> None:
    full = Authorization(
        "https://c.example", scope=["openid"], prompt=["login"], max_age=1, display="page", login_hint="a",
        acr_values="b", ui_locales="en", claims={"id_token": {}}, hint="ada",
    )  # fmt: skip
    client = clients.Client("cli_1", "acc_1", datetime.now(UTC), datetime.now(UTC), client_name="Calendar")
    result = handoff.interaction_claims(
        full, client, interaction="int_1", descriptions={}, base_url="https://a", login_url="https://b",
        at=datetime.now(UTC),
    )  # fmt: skip
    assert members("member of the interaction") == set(result)
    [example] = [each for each in json_blocks(LOGIN) if "scopes" in each]
    assert set(example) <= set(result)
    assert example["exp"] - example["iat"] == result["exp"] - result["iat"] == 600
    assert f"`{handoff.INTERACTION_TYPE}`" in prose(LOGIN)
    assert f"up to {handoff.MAX_INTERACTION // 1024} KiB" in prose(LOGIN)
    assert members("member of the interaction") >= set(request.FORWARDED)


def test_the_handoffs_are_as_told() -> None:
    output, refused, left = [each for each in json_blocks(LOGIN) if "scopes" not in each]
    assert members("member of the handoff") == set(output)
    [asked] = [each for each in json_blocks(LOGIN) if "scopes" in each]
    authorization = Authorization("https://c.example", scope=[each["name"] for each in asked["scopes"]], max_age=3600)
    for each in (output, refused, left):
        at = datetime.fromtimestamp(each["iat"] + 1, UTC)
        assert not handoff.envelope_problem(each, account=asked["account"], base_url=asked["iss"], at=at)
        assert each.get("interaction", asked["jti"]) == asked["jti"]
    at = datetime.fromtimestamp(output["iat"] + 1, UTC)
    started_at = datetime.fromtimestamp(asked["iat"], UTC)
    found = handoff.check(output, authorization, started_at=started_at, at=at)
    assert isinstance(found, handoff.Granted)
    assert found.details.claims == output["claims"]
    assert isinstance(handoff.check(refused, authorization, started_at=started_at, at=at), handoff.Denied)
    assert first_column(LOGIN, "error", "use it when") == list(handoff.ERRORS)
    text = prose(LOGIN)
    for typ in (handoff.HANDOFF_TYPE, handoff.REVOKE_TYPE):
        assert f"`{typ}`" in text
    assert f"up to {handoff.MAX_HANDOFF // 1024} KiB" in text
    assert "at most 5 minutes later" in text
    assert handoff.HANDOFF_LIFE == 300


def test_the_words_of_refusals_are_those_of_the_code() -> None:
    source = "".join((DOCS.parent / "gatepost" / each).read_text("utf-8") for each in (
        "oauth/authorize/handoff.py", "oauth/authorize/flow.py", "web/authorize.py",
    ))  # fmt: skip
    head = "`error_description` begins with `handoff:` and then"
    reported = [words for row in rows(LOGIN, head, "because") for words in re.findall(r"`([^`]+)`", row[0])]
    assert len(reported) > 15
    assert not [words for words in reported if words not in source]


@pytest.mark.parametrize("page", [LOGIN, WORKLOADS, BINDING], ids=lambda page: page.stem)
def test_algorithms(page: Path) -> None:
    assert all(each in prose(page) for each in jwk_sets.ASSERTION_ALGORITHMS)


def test_there_is_no_logout(reader: Reader) -> None:
    """Discovery names nothing of what the page says is not there."""
    document = reader.service.session.get(f"{reader.service.url}/.well-known/openid-configuration").json()
    absent = ("end_session_endpoint", "check_session_iframe", "backchannel_logout_supported")
    assert not [name for name in absent if name in document]
    assert not [name for name in document if "logout" in name or "session" in name]
    assert {"end_session_endpoint", "check_session_iframe"} <= set(re.findall(r"`(\w+)`", prose(EXPLAINED)))
