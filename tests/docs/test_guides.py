"""The guides about login, workloads, exchange, bound tokens and fapi2 work, and can be pasted twice."""

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatepost.oauth import client_grants, dpop
from gatepost.oauth.provenance import LONGEST_CHAIN
from tests.assertions import signed
from tests.docs.pages import DEFAULT_URL, HOW_TO, bare, blocks, first_column, json_blocks, prose, rows
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
GITHUB = "https://token.actions.githubusercontent.com"
CI = rsa_key({"kid": "ci"})
TWICE = (1, 2)

pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="module")
def login_port() -> str:
    return str(free_ports(1)[0])


@pytest.fixture
def own(reader: Reader, tmp_path: Path, login_port: str) -> Iterator[Reader]:
    """A reader in a directory of their own, with the examples. Nothing but credentials and keys is left behind."""
    (tmp_path / "gatepost-data").symlink_to(reader.service.directory)
    take_along(tmp_path / "examples", {LOGIN_PORT: login_port, DEFAULT_URL: reader.service.url})
    own = Reader(tmp_path, reader.service)
    before = set(tmp_path.iterdir())
    yield own
    assert {path.suffix for path in set(tmp_path.iterdir()) - before} <= {".json"}


def test_the_login_guide_works(own: Reader, login_port: str) -> None:
    """A program fills in the form and copies the code where a person would use a browser."""
    [starts] = [line for line in "\n".join(blocks(LOGIN, "sh")).splitlines() if line.endswith(" &")]
    browser = shlex.join([sys.executable, "-m", programs.__name__])
    person = {
        starts: f"{starts}\n{STARTED.format(port=LOGIN_PORT)}",
        "CODE=…": f'CODE=$(PYTHONPATH={EXAMPLES.parent} {browser} "$ADDRESS" code)',
        LOGIN_PORT: login_port,
    }
    for number in TWICE:
        printed = own.run(LOGIN, replaced=person)
        assert "error_description" not in printed
        assert "https://app.example.com/login" in printed
        [scope] = re.findall(r'^\{"access_token".*"scope":"([^"]+)"', printed, re.MULTILINE)
        assert set(scope.split()) == {"openid", "offline_access", "events:read"}
        assert re.search(r'\{"sub":"acc_\w+\.ada"\}', printed), "no scope that was granted releases more"
        assert len(re.findall(r"\.ada .* revoked_by_login$", printed, re.MULTILINE)) == number
        assert printed.endswith("401\n")


def test_the_workload_guide_works(own: Reader) -> None:
    """First with a local issuer and what the workflow does, and then as the page is, without a token of GitHub."""
    keys = json.dumps({"keys": [CI.as_dict(private=False)]}).encode()
    now = int(time.time())
    with receiver((200, {}, keys)) as issuer:
        claims: dict[str, Any] = {
            "iss": issuer.url, "aud": own.service.url, "sub": "repo:acme/shop:ref:refs/heads/main", "iat": now,
            "exp": now + 300, "repository": "acme/shop", "ref": "refs/heads/main",
        }  # fmt: skip
        remove = "gatepost issuer remove github-main"
        local = {
            f"{GITHUB}/.well-known/jwks": issuer.url,
            GITHUB: issuer.url,
            "ASSERTION=…": f"ASSERTION={signed(CI, claims)}",
            remove: f"{workflow(own)}\n{remove}",
        }
        printed = own.run(WORKLOADS, "export GATEPOST_DEV=true", local)
    assert '{"decision":"issue",' in printed
    [token] = re.findall(r"^issued to the workflow: (\S+)$", printed, re.MULTILINE)
    issued = decode_jwt(token)[1]
    assert issued["aud"] == "https://releases.example.com"
    assert re.fullmatch(r"acc_\w+:github-main:repo:acme/shop:ref:refs/heads/main", issued["sub"])
    assert "auth_time" not in issued
    again = own.run(WORKLOADS)
    assert '{"decision":"refuse",' in again
    for output in (printed, again):
        assert output.endswith("github-main is no longer trusted.\n")


def workflow(own: Reader) -> str:
    """Return the command with which the workflow gets its token, without jq."""
    [text] = [each for each in blocks(WORKLOADS, "yaml") if "run: |" in each]
    command = text[text.index("TOKEN=$(curl") :]
    access_token = """python -c 'import json, sys; print(json.load(sys.stdin)["access_token"])'"""
    return f"""
GATEPOST={own.service.url} CLIENT_ID=${{CREDENTIALS%:*}} CLIENT_SECRET=${{CREDENTIALS#*:}}
{command.replace("jq -r .access_token", access_token)}
echo; echo "issued to the workflow: $TOKEN"
"""


def test_the_exchange_guide_works(own: Reader) -> None:
    for _ in TWICE:
        printed = own.run(EXCHANGE)
        [claims] = [each for each in json_in(printed) if "act" in each]
        assert claims["aud"] == "https://stock.example.com"
        assert claims["scope"] == "stock:read"
        assert claims["act"] == {"sub": claims["client_id"]}
        assert claims["sub"] != claims["client_id"]


def test_the_exchange_guide_matches_the_code() -> None:
    [example] = json_blocks(EXCHANGE)
    assert example["act"]["sub"] == example["client_id"]
    assert f"at most {LONGEST_CHAIN} exchanges" in prose(EXCHANGE)
    modes = [bare(row[0]) for row in rows(EXCHANGE, "`exchange` of the grant", "the new token says")]
    assert tuple(modes) == client_grants.EXCHANGES
    parameters = first_column(EXCHANGE, "parameter", "description")
    assert {"subject_token", "subject_token_type", "requested_token_type"} <= set(parameters)


def test_the_binding_guide_works(own: Reader) -> None:
    for _ in TWICE:
        printed = own.run(BINDING)
        assert "use_dpop_nonce\nDPoP True\n" in printed
        assert re.search(r"^dpop_bound_access_tokens +true$", printed, re.MULTILINE)
    assert f"older than {dpop.NONCE_LIFE // 60} minutes" in prose(BINDING)


def test_the_fapi2_guide_works(own: Reader) -> None:
    first, second = (own.run(FAPI2, "exec 2>&1") for _ in TWICE)
    [refused] = blocks(FAPI2, "text")
    assert refused in re.sub(r"cli_\w+", "cli_…", first)
    assert first.count("gatepost: ") == 1, "only the refusal that the guide shows"
    assert "gatepost: " not in second, "the account has been switched"
    assert "gps_" not in first + second, "no secret is printed"
    for name in ("bank", "clinic"):
        assert own.service.cli_json("account", "show", name)["settings"]["profile"] == "fapi2"


def test_tokens_of_before_the_switch_to_fapi2_stay_valid(own: Reader) -> None:
    _, client = own.service.account("switched")
    token = own.service.token(client, "gatepost:scopes")
    jwks = programs.run("machine_client", "--key", str(own.directory / "key.json"), "--jwks").stdout
    members = ("token_endpoint_auth_method=private_key_jwt", "id_token_signed_response_alg=ES256", f"jwks={jwks}")
    own.service.cli("client", "set", client.id, *members)
    own.service.cli("account", "set", "switched", "profile=fapi2")
    assert own.service.post("/oauth/scopes", token, {"name": "x:read"}).status_code == 201
