"""The pages about login, workloads, exchange, bound tokens and fapi2 are true, and what they tell to type works."""

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatepost.core import jwk_sets
from gatepost.oauth import client_grants, clients, dpop
from gatepost.oauth.authorize import handoff, request
from gatepost.oauth.authorize.request import Authorization
from gatepost.oauth.provenance import LONGEST_CHAIN
from tests import service
from tests.assertions import signed
from tests.docs.pages import DEFAULT_URL, DOCS, HOW_TO, bare, blocks, first_column, json_blocks, prose, rows
from tests.docs.reader import Reader
from tests.docs.test_page_commands import json_in
from tests.examples import programs
from tests.examples.programs import EXAMPLES, LOGIN_PORT, STARTED, take_along
from tests.login import decode_jwt
from tests.receiver import receiver
from tests.rsa_keys import rsa_key
from tests.service import free_ports

LOGIN = HOW_TO / "connect-a-login.md"
WORKLOADS = HOW_TO / "workload-identity.md"
EXCHANGE = HOW_TO / "exchange-tokens.md"
BINDING = HOW_TO / "bind-tokens-to-keys.md"
FAPI2 = HOW_TO / "use-fapi2.md"
EXPLAINED = DOCS / "explanation" / "login-without-a-login-ui.md"
CI = rsa_key({"kid": "ci"})

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


@pytest.fixture(scope="module")
def known(reader: Reader) -> str:
    """What the tutorial has them type, as far as the pages build on it."""
    first = reader.service.first
    assert first is not None
    token = reader.service.token(first, "gatepost:clients gatepost:scopes")
    typed = "\n".join(blocks(DOCS / "tutorial" / "first-token.md", "sh")).splitlines()
    helpers = [line for line in typed if line.startswith(("pick()", "pretty()", "define()"))]
    assert len(helpers) == 3
    admin = reader.service.post(
        "/oauth/scopes", token, {"name": "invoices:read", "resource": "https://api.example.com"}
    )
    assert admin.status_code == 201
    client = reader.service.define_client(token, scope="invoices:read")
    values = {"URL": reader.service.url, "ADMIN_TOKEN": token, "CLIENT_ID": client.id, "CLIENT_SECRET": client.secret}
    return "\n".join([f"{name}={value}" for name, value in values.items()] + helpers)


def test_connecting_a_login(reader: Reader, known: str, port: str) -> None:
    [starts] = [line for line in "\n".join(blocks(LOGIN, "sh")).splitlines() if line.endswith(" &")]
    browser = shlex.join([sys.executable, "-m", programs.__name__])
    printed = reader.run(
        LOGIN,
        f"{known}\nexport PYTHONPATH={EXAMPLES.parent}",
        {
            starts: f"{starts}\n{STARTED.format(port=LOGIN_PORT)}",
            "CODE=…": f'CODE=$({browser} "$ADDRESS" code)',
            LOGIN_PORT: port,
        },
    )
    assert "error_description" not in printed
    assert "https://app.example.com/login" in printed
    assert re.search(r"^openid offline_access events:read$|^events:read offline_access openid$", printed, re.MULTILINE)
    assert re.search(r'\{"sub":"acc_\w+\.ada"\}', printed), "no scope that was granted releases more"
    assert re.search(r"\.ada .* revoked_by_login$", printed, re.MULTILINE)
    assert printed.endswith("401\n")


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


def test_workload_identities(reader: Reader, known: str) -> None:
    """With an issuer that signs here; then what the workflow does."""
    keys = json.dumps({"keys": [CI.as_dict(private=False)]}).encode()
    now = int(time.time())
    with receiver((200, {}, keys)) as issuer:
        claims: dict[str, Any] = {
            "iss": issuer.url, "aud": reader.service.url, "sub": "repo:acme/shop:ref:refs/heads/main", "iat": now,
            "exp": now + 300, "repository": "acme/shop", "ref": "refs/heads/main",
        }  # fmt: skip
        moved = {
            "https://token.actions.githubusercontent.com/.well-known/jwks": issuer.url,
            "https://token.actions.githubusercontent.com": issuer.url,
        }
        before = f"{known}\nexport GATEPOST_DEV=true ASSERTION={signed(CI, claims)}"
        last = "\n".join(blocks(WORKLOADS, "sh")).splitlines()[-1]
        printed = reader.run(WORKLOADS, before, moved | {last: f"{last}\n{workflow(reader)}"})
    assert '{"decision":"issue",' in printed
    token = decode_jwt(printed.splitlines()[-1])[1]
    assert token["aud"] == "https://releases.example.com"
    assert re.fullmatch(r"acc_\w+:github-main:repo:acme/shop:ref:refs/heads/main", token["sub"])
    assert "auth_time" not in token


def workflow(reader: Reader) -> str:
    """The command by which the workflow gets its token."""
    [text] = [each for each in blocks(WORKLOADS, "yaml") if "run: |" in each]
    asks = text[text.index("TOKEN=$(curl") :]
    return f"""
GATEPOST={reader.service.url} CLIENT_ID=$DEPLOYER_ID CLIENT_SECRET=$(pick client_secret <<< "$DEPLOYER")
{asks.replace("jq -r .access_token", "pick access_token")}
echo; echo "$TOKEN"
"""


def test_exchanging_tokens(reader: Reader, known: str) -> None:
    printed = reader.run(EXCHANGE, known)
    assert "error_description" not in printed
    [claims] = [each for each in json_in(printed) if "act" in each]
    assert claims["aud"] == "https://stock.example.com"
    assert claims["scope"] == "stock:read"
    assert claims["act"] == {"sub": claims["client_id"]}
    assert claims["sub"] != claims["client_id"]
    [example] = json_blocks(EXCHANGE)
    assert example["act"]["sub"] == example["client_id"]
    assert f"at most {LONGEST_CHAIN} exchanges" in prose(EXCHANGE)
    modes = [bare(row[0]) for row in rows(EXCHANGE, "`exchange` of the grant", "the new token says")]
    assert tuple(modes) == client_grants.EXCHANGES
    sent = [bare(row[0]) for row in rows(EXCHANGE, "parameter", "description")]
    assert {"subject_token", "subject_token_type", "requested_token_type"} <= set(sent)


def test_binding_tokens(reader: Reader, known: str) -> None:
    printed = reader.run(BINDING, known)
    assert "use_dpop_nonce\nDPoP True\n" in printed
    assert '"dpop_bound_access_tokens":true' in printed
    assert "older than 5 minutes" in prose(BINDING)
    assert dpop.NONCE_LIFE == 300


def test_using_fapi2(reader: Reader) -> None:
    [switch] = [line for line in "\n".join(blocks(FAPI2, "sh")).splitlines() if line.endswith("clinic profile=fapi2")]
    before = f"""{switch}
curl -sS -o /dev/null -w 'before: %{{http_code}}\\n' "$URL/oauth/scopes" -H "Authorization: Bearer $TOKEN" \\
  -H 'Content-Type: application/json' -d '{{"name": "x:read"}}'"""
    printed = reader.run(FAPI2, replaced={f"\n{switch}\n": f"\n{before}\n"})
    assert "before: 201\n" in printed, "tokens of before work until they expire"
    assert "error_description" not in printed
    assert printed.count("not yet\n") == 1
    assert printed.count("fapi2") >= 1
    assert "gps_" not in printed, "no secret is printed"
    accounts = {each["name"]: each for each in reader.service.cli_json("account", "list")}
    assert [accounts[name]["settings"]["profile"] for name in ("bank", "clinic")] == ["fapi2", "fapi2"]
    reader.service.cli("account", "create", "told")
    done = reader.service.cli("account", "set", "told", "profile=fapi2", check=False)
    [result] = blocks(FAPI2, "text")
    assert re.sub(r"cli_\w+", "cli_…", result.strip()) in re.sub(r"cli_\w+", "cli_…", done.stderr)


def test_there_is_no_logout(reader: Reader) -> None:
    """Discovery names nothing of what the page says is not there."""
    document = reader.service.session.get(f"{reader.service.url}/.well-known/openid-configuration").json()
    absent = ("end_session_endpoint", "check_session_iframe", "backchannel_logout_supported")
    assert not [name for name in absent if name in document]
    assert not [name for name in document if "logout" in name or "session" in name]
    assert {"end_session_endpoint", "check_session_iframe"} <= set(re.findall(r"`(\w+)`", prose(EXPLAINED)))
