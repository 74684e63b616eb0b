"""The commands on the pages work when they are run in order."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import psycopg
import pytest

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.core import clock
from gatepost.core.secrets import Secret
from gatepost.ledger import search
from gatepost.oauth.account_admin import CreatedAccount
from gatepost.run import app
from gatepost.run.app import welcome
from gatepost.settings import Settings, load
from gatepost.web.ops import pages
from gatepost.webhooks import publish
from gatepost_client import TokenError
from tests import command, postgres, service
from tests.docs.pages import DEFAULT_URL, DOCS, HOW_TO, REFERENCE, ROOT, blocks
from tests.docs.reader import DASH, RECEIVER, Reader
from tests.receiver import receiver
from tests.service import Client, Service
from tests.waiting import LIMIT

JOSE = "jose@6.2.17"
SHOP = "--account shop"
FIRST_WEBHOOK = DOCS / "tutorial" / "first-webhook.md"

pytestmark = pytest.mark.xdist_group("docs")


def test_the_readme_works(reader: Reader) -> None:
    """From an account up to a delivered and verified webhook, and then once more in another shell."""
    (reader.directory / "examples").symlink_to(ROOT / "examples")
    port = {RECEIVER: free_port()}
    for number, shell in enumerate(("bash", DASH), 1):
        printed = reader.run(ROOT / "README.md", wait_for_deliveries=True, replaced=port, shell=shell)
        assert "gatepost: " not in printed
        [token] = re.findall(r"^access_token (\S+)$", printed, re.MULTILINE)
        claims = jwt.decode(token, options={"verify_signature": False})
        assert (claims["aud"], claims["scope"]) == ("https://api.acme.example", "invoices:read")
        assert printed.count('delivered and verified: invoice.paid {"invoice": 17}\n') == 1
        assert len(re.findall(r"^dlv_\w+ +succeeded +invoice.paid ", printed, re.MULTILINE)) == 2 * number, (
            "listed twice"
        )
        assert re.search(r"oauth\.token\.issued .* tok_", printed)
        assert re.search(r"invoice\.paid ", printed), "it is in the ledger"
        assert re.search(r"^acme: intact: ", printed, re.MULTILINE)
    for noun, count in (("client", 2), ("endpoint", 1), ("subscription", 1)):
        assert len(reader.service.cli_json(noun, "list", "--account", "acme")) == count, "nothing is created twice"


def free_port() -> str:
    return str(service.free_ports(1)[0])


def test_the_webhook_tutorial_works(reader: Reader) -> None:
    before, port = set(reader.directory.iterdir()), {RECEIVER: free_port()}
    for _ in range(2):
        printed = reader.run(FIRST_WEBHOOK, wait_for_deliveries=True, replaced=port)
        assert {path.name for path in set(reader.directory.iterdir()) - before} == {"shop-endpoint.json", "shop.json"}
        check_webhook_tutorial(printed)
    for noun in ("client", "endpoint", "subscription"):
        assert len(reader.service.cli_json(noun, "list", "--account", "shop")) == 1, "nothing is created twice"


def check_webhook_tutorial(printed: str) -> None:
    [first_line] = [text for text in blocks(FIRST_WEBHOOK, "text") if "order.paid" in text]
    [second_line] = [text for text in blocks(FIRST_WEBHOOK, "text") if "order.shipped" in text]
    assert printed.count(first_line) == 1, printed
    assert printed.count(second_line) == 1
    assert "refused: the webhook-id header is missing\n" in printed
    assert re.search(r"^400$", printed, re.MULTILINE)
    assert '"status": "succeeded"' in printed
    [waiting] = [each for each in json_in(printed) if each.get("status") == "pending"]
    assert waiting["attempts"][0]["response_code"] == 503
    retries = waiting["retries"]
    assert [each["because"] for each in retries["plan"]] == ["schedule", "schedule"]
    assert retries["next_at"] == retries["plan"][0]["at"]
    [result, after] = re.findall(r"^dlv_\w+ delivers .*?(?=^\S+_|\Z)", printed, re.MULTILINE | re.DOTALL)[:2]
    assert "responded 503" in result
    assert "attempt 2 is planned" in result
    assert "responded 204" in after
    assert "(delivered)" in after


def json_in(printed: str) -> list[Any]:
    """Return the JSON documents in the output: every line but the first and the last is indented."""
    return [json.loads(text) for text in re.findall(r"^\{\n.*?^\}$", printed, re.MULTILINE | re.DOTALL)]


def test_the_token_tutorial_works(reader: Reader) -> None:
    page = DOCS / "tutorial" / "first-token.md"
    before = set(reader.directory.iterdir())
    [refused] = [text for text in blocks(page, "text") if text.startswith("gatepost: ")]
    for _ in range(2):
        printed = reader.run(page, "exec 2>&1")
        assert {path.name for path in set(reader.directory.iterdir()) - before} <= {"billing.json"}
        assert refused in printed
        assert printed.count("gatepost: ") == 1, "only the refusal that the tutorial shows"
        assert re.search(r"^scopes_are_granted +false$", printed, re.MULTILINE)
        claims = json.loads("{" + re.findall(r'^\{\n(  "iss".*?)^\}$', printed, re.MULTILINE | re.DOTALL)[0] + "}")
        assert claims["exp"] - claims["iat"] == 300
        assert f"evt_{claims['jti'].removeprefix('tok_')}" in printed
        assert '"error": "invalid_scope"' in printed
        assert re.search(r"^default: intact: ", printed, re.MULTILINE)


def test_the_first_start_prints_what_the_pages_show(reader: Reader) -> None:
    """The lines are the same except for ids and secrets."""
    account = accounts.Account("acc_…", accounts.FIRST, clock.EPOCH)
    default = Settings()
    where = f"console {pages.address(default.ops_host, default.ops_port)}\nready {DEFAULT_URL}\n"
    output = welcome(CreatedAccount(account, "cli_…", Secret("gps_…"))) + where
    assert output in blocks(ROOT / "README.md", "text")
    assert output in blocks(DOCS / "tutorial" / "first-token.md", "text")


def test_the_rotation_guide_works(reader: Reader, first: Client) -> None:
    page = HOW_TO / "rotate-secrets-and-keys.md"
    with receiver() as to:
        endpoint = reader.prepare_delivery("rotating-endpoint", to)
        printed = reader.run(page, endpoint.variables + "\n" + reader.prepare_client("rotating", first))
    assert "error_description" not in printed
    assert "gatepost.example/docs" not in printed
    assert printed.count('"secret":"whsec_') == 1
    assert printed.count("gps_") == 2, "one by HTTP and one by the command"
    assert "laptop stolen" in printed
    assert "3 server keys rewrapped." in printed


def test_the_ledger_guide_works(reader: Reader, first: Client) -> None:
    printed = reader.run(HOW_TO / "read-the-ledger.md", reader.prepare_client("reading", first))
    *_, last = (reader.directory / "ledger.jsonl").read_text().splitlines()
    assert json.loads(last)["head"]["text"] in printed or last in printed
    assert printed.count(": intact: ") >= 3
    assert "2555d" in printed or str(2555 * 86400) in printed


def test_the_operator_guide_works(reader: Reader) -> None:
    reader.service.account("operated")  # the third, after `default` and `gatepost`
    for _ in range(2):
        printed = reader.run(HOW_TO / "use-the-operator-view.md")
        assert "The token is revoked.\n" in printed
        assert '"next_cursor":"' in printed, "there are more than two accounts"
        assert '"type":"oauth.' in printed
        assert '"status":401' not in printed


def test_the_proxy_guide_works(reader: Reader) -> None:
    assert "can be used on this machine only" in reader.run(HOW_TO / "run-behind-a-proxy.md")


def test_the_delivery_guide_works(reader: Reader) -> None:
    with receiver((503, {}, b"busy")) as to:
        made = reader.prepare_delivery("reading-a-delivery", to)
        page = HOW_TO / "read-a-delivery.md"
        printed = reader.run(
            page, made.variables, wait_for_deliveries=True, replaced={SHOP: f"--account {made.account}"}
        )
    assert "gatepost.example/docs" not in printed
    found = json_in(printed)
    assert [len(each["data"]) for each in found[:2]] == [1, 1]
    assert not found[2]["data"], "it has not failed for good"
    assert any("now" in each for each in found)
    assert any(each["data"] and "subscriptions" in each["data"][0] for each in found)
    assert "responded 503" in printed


def test_the_replay_guide_works(reader: Reader) -> None:
    with receiver() as to:
        made = reader.prepare_delivery("replaying", to)
        page = HOW_TO / "replay-a-day.md"
        printed = reader.run(
            page, made.variables, wait_for_deliveries=True, replaced={SHOP: f"--account {made.account}"}
        )
        ids = [each.headers["webhook-id"] for each in to.requests]
    assert "gatepost.example/docs" not in printed
    assert ids == [made.event] * 3, "the first, the one that was named, and the retry"
    assert printed.count('"state":"running"') == 3
    assert printed.count('"state":"ended"') == 1
    recorded = [each["type"] for each in reader.service.entries(made.account_id)]
    assert recorded.count("webhook.replay.started") == recorded.count("webhook.replay.ended") == 3


def test_the_pause_guide_works(reader: Reader) -> None:
    with receiver() as to:
        made = reader.prepare_delivery("pausing", to)
        page = HOW_TO / "pause-and-resume-an-endpoint.md"
        printed = reader.run(
            page,
            made.variables,
            wait_for_deliveries=True,
            replaced={SHOP: f"--account {made.account}", " shop ": f" {made.account} "},
        )
    assert "gatepost.example/docs" not in printed
    assert printed.count('"disabled_reason":"requested"') == 1
    recorded = [each["type"] for each in reader.service.entries(made.account_id)]
    assert recorded.count("webhook.endpoint.disabled") == recorded.count("webhook.endpoint.enabled") == 1
    assert re.search(r"^hold_limit +14d +set$", printed, re.MULTILINE)


def test_the_publishing_guide_works(reader: Reader, first: Client) -> None:
    page = HOW_TO / "publish-events.md"
    token = reader.service.token(first, "gatepost:events")
    printed = reader.run(page, f"EVENTS_TOKEN={token}")
    assert "2 events published" in printed
    assert '"again":false' in printed
    assert printed.count("invoice.paid ") >= 4, "all four are in the ledger"
    assert "gatepost.example/docs" not in printed


def test_the_nats_guide_works(reader: Reader) -> None:
    reader.run(HOW_TO / "publish-from-nats.md")


def test_the_kafka_guide_works(reader: Reader) -> None:
    reader.run(HOW_TO / "publish-from-kafka.md")


def test_publishing_in_a_transaction_works(postgres_server: postgres.Server, tmp_path: Path) -> None:
    """Run the SQL and the Python of the page with a role that has only the documented permissions."""
    page = HOW_TO / "publish-events.md"
    url = postgres_server.create_database("outbox")
    environment = service.environment(tmp_path, url)
    opened = app.open_for_start(load({}, environment))
    command.alone(tmp_path, url).cli("account", "create", accounts.FIRST)
    grant, insert, look = blocks(page, "sql")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE ROLE app LOGIN")
        owner.execute(grant.encode())
    with psycopg.connect(url.replace(f"{postgres.OWNER}@", "app@"), autocommit=True) as connection:
        for statement in re.sub("^--.*$", "", insert, flags=re.MULTILINE).split(";"):
            if statement.strip():
                connection.execute(statement.encode())
        known: dict[str, Any] = {}
        exec(compile(blocks(page, "python")[0], page.name, "exec"), known)
        known["pay"](connection, 22)
        connection.execute("INSERT INTO gatepost_outbox (account, type, data) VALUES ('nobody', 'a.b', '1')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(look.encode())
    try:
        assert opened.store.run_now(publish.from_outbox).published == 2
        found = search.newest(opened.store, _default(opened), search.EntryFilter(("invoice.paid",)), 10)
        assert sorted(each.data or "" for each in found) == ['{"invoice":21}', '{"invoice":22}']
        with psycopg.connect(url, autocommit=True) as owner:
            assert [row[4] for row in owner.execute(look.encode())] == ["there is no account nobody"]
    finally:
        opened.store.close()
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("DROP OWNED BY app")
            owner.execute("DROP ROLE app")
        postgres_server.drop_database("outbox")


def _default(opened: app.Runtime) -> str:
    found = opened.store.read_now(lambda tx: account_rows.page(tx, "", 10))
    return next(each.id for each in found if each.name == accounts.FIRST)


def test_the_simulation_commands_work(reader: Reader) -> None:
    assert "succeeded: delivered" in reader.run(REFERENCE / "deliveries.md")


def test_the_settings_page_works(reader: Reader) -> None:
    assert "access_token_lifetime" in reader.run(REFERENCE / "settings.md")


def test_the_postgresql_guide_works(reader: Reader, postgres_server: postgres.Server, tmp_path: Path) -> None:
    page = HOW_TO / "use-postgresql.md"
    for database, prepared in zip(("postgres", "documented"), blocks(page, "sql"), strict=True):
        with psycopg.connect(postgres_server.url(database), autocommit=True) as connection:
            for statement in re.sub(r"\bgatepost\b", "documented", prepared).strip().split("\n"):
                connection.execute(statement.encode())
    [url] = re.findall(r"postgresql://\S+", "\n".join(blocks(page, "sh")))
    assert urlsplit(url).scheme == "postgresql"
    real = postgres_server.url("documented").replace(f"{postgres.OWNER}@", "documented@")
    before = f"export GATEPOST_DATA={tmp_path} GATEPOST_PORT={free_port()} GATEPOST_OPS_PORT={free_port()}"
    printed = reader.run(page, before, replaced={url: f"'{real}'"})
    assert "applied foundation" in printed
    assert re.search(r"client_secret +gps_", printed)
    assert "ledger of gatepost: intact" in printed
    assert not list(tmp_path.iterdir()), "nothing beside the database"
    postgres_server.drop_database("documented")


def test_capacity_is_estimated(reader: Reader) -> None:
    printed = reader.run(DOCS / "explanation" / "capacity.md")
    assert re.search(r"^deliverers +1 ", printed, re.MULTILINE)


def test_archiving_works(reader: Reader) -> None:
    printed = reader.run(HOW_TO / "archive.md")
    assert "The archive was verified. Nothing was deleted." in printed
    assert printed.count("archive-until-today: intact: ") == 2


def test_the_backup_guide_works(reader: Reader) -> None:
    printed = reader.run(HOW_TO / "back-up-and-restore.md")
    assert "The copy was verified." in printed
    assert "ledger of gatepost: intact" in printed


def test_the_python_client_verifies_tokens(reader: Reader) -> None:
    snippet, _ = blocks(HOW_TO / "verify-tokens.md", "python")
    known: dict[str, Any] = {}
    audience = "https://verify-client.example.com"
    result = snippet.replace(DEFAULT_URL, reader.service.url).replace("https://api.example.com", audience)
    exec(compile(result, "verify-tokens.md", "exec"), known)
    token, other = tokens_to_verify(reader.service, "verify-client")
    assert known["verify"](f"Bearer {token}", "read").scopes == {"read", "write"}
    for wrong, scope in ((token, "delete"), (other, "read"), (token[:-8] + "AAAAAAAA", "read")):
        with pytest.raises(TokenError):
            known["verify"](f"Bearer {wrong}", scope)


def test_the_python_example_verifies_tokens(reader: Reader) -> None:
    _, snippet = blocks(HOW_TO / "verify-tokens.md", "python")
    known: dict[str, Any] = {}
    exec(compile(snippet.replace(DEFAULT_URL, reader.service.url), "verify-tokens.md", "exec"), known)
    token, other = tokens_to_verify(reader.service, "verify-python")
    known["AUDIENCE"] = "https://verify-python.example.com"
    claims = known["verify"](token, "read")
    assert claims["scope"] == "read write"
    assert claims["client_id"] == claims["sub"]
    for wrong, scope in ((token, "delete"), (other, "read"), (token[:-8] + "AAAAAAAA", "read")):
        with pytest.raises(jwt.PyJWTError):
            known["verify"](wrong, scope)


def test_the_node_example_verifies_tokens(reader: Reader, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("Node is not on this machine; the service does not need it")
    command = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", JOSE]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    [snippet] = blocks(HOW_TO / "verify-tokens.md", "js")
    audience = "https://verify-node.example.com"
    result = snippet.replace(DEFAULT_URL, reader.service.url).replace("https://api.example.com", audience)
    each = "console.log(await verify(token, scope).then((it) => it.scope, () => 'refused'));"
    tell = f"for (const [token, scope] of JSON.parse(process.argv[2])) {each}\n"
    (tmp_path / "verify.mjs").write_text(result + tell)
    token, other = tokens_to_verify(reader.service, "verify-node")
    tried = [(token, "read"), (token, "delete"), (other, "read"), (token[:-8] + "AAAAAAAA", "read")]
    done = subprocess.run(
        ["node", "verify.mjs", json.dumps(tried)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.stdout.splitlines() == ["read write", "refused", "refused", "refused"]


def tokens_to_verify(running: Service, name: str) -> tuple[str, str]:
    """Return a token for the API of that name, and a token for another API."""
    _, admin = running.account(name)
    token = running.token(admin, "gatepost:clients gatepost:scopes")
    for scope, host in (("read", name), ("write", name), ("elsewhere", f"not-{name}")):
        running.post("/oauth/scopes", token, {"name": scope, "resource": f"https://{host}.example.com"})
    client = running.define_client(token, scope="read write elsewhere")
    return running.token(client, "read write"), running.token(client, "elsewhere")
