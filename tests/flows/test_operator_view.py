"""The operator's view: who may read it, what it shows of all accounts, and that it changes nothing."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import requests

from gatepost.core import clock, ids
from gatepost.oauth import operator_tokens
from gatepost.oauth.operator_tokens import Contents
from gatepost.web.ops import operator, operator_views
from tests.flows.test_delivery import Platform
from tests.receiver import OK, receiver
from tests.service import Service
from tests.waiting import wait_until

PATHS = sorted(operator.VIEWS)


def make_token(gatepost: Service) -> str:
    """A token as `gatepost operator token` creates it, without a process."""
    opened = gatepost.opened
    unit = partial(operator_tokens.create, service=opened.service, lifetime=timedelta(hours=1), reason="")
    return opened.store.run_now(unit).token.reveal()


@pytest.fixture(scope="module")
def token(gatepost: Service) -> str:
    return make_token(gatepost)


def ask(gatepost: Service, token: str, view: str, **query: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return gatepost.session.get(f"{gatepost.ops}/operator/{view}", params=query, headers=headers)


def read(gatepost: Service, token: str, view: str, **query: Any) -> dict[str, Any]:
    answer = ask(gatepost, token, view, **query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    body: dict[str, Any] = answer.json()
    return body


class TestAccess:
    def test_only_an_operator_token_is_accepted(self, gatepost: Service, account_name: str) -> None:
        _, admin = gatepost.account(account_name)
        store, keys = gatepost.opened.store, gatepost.opened.service.keys
        now = clock.milliseconds(store.now())

        def forged(raw_id: bytes, expires_at: int, key: bytes = keys.operator) -> str:
            return operator_tokens.write(key, Contents(raw_id, expires_at)).reveal()

        entries = read(gatepost, make_token(gatepost), "entries", account="gatepost", limit=100)["data"]
        authorized = next(ids.raw(entry["id"]) for entry in entries if entry["type"] == operator_tokens.TYPE)
        other = next(ids.raw(entry["id"]) for entry in entries if entry["type"] != operator_tokens.TYPE)
        refused = {
            "none": "",
            "of a tenant": gatepost.token(admin, "gatepost:clients gatepost:deliveries"),
            "a secret": admin.secret,
            "expired": forged(authorized, now - 1),
            "with another key": forged(authorized, now + 60_000, keys.hash),
            "of no entry": forged(ids.new_raw(), now + 60_000),
            "of another entry": forged(other, now + 60_000),
            "malformed": "gpo_x",
        }  # fmt: skip
        for name, text in refused.items():
            for path in PATHS:
                answer = ask(gatepost, text, path.removeprefix("/operator/"))
                assert (answer.status_code, answer.json()["code"]) == (401, "invalid_token"), (name, path)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
                assert not text or text not in answer.text
        assert ask(gatepost, forged(authorized, now + 60_000), "overview").status_code == 200

    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    def test_other_methods_are_refused(self, gatepost: Service, token: str, method: str) -> None:
        for path in ("/operator", "/operator/", *PATHS):
            headers = {"Authorization": f"Bearer {token}"}
            answer = gatepost.session.request(method, f"{gatepost.ops}{path}", headers=headers)
            assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD"), path

    def test_the_token_is_worthless_on_the_public_listener(self, gatepost: Service, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        assert gatepost.session.get(f"{gatepost.url}/operator/accounts", headers=headers).status_code == 404
        assert gatepost.session.get(f"{gatepost.url}/webhooks/deliveries", headers=headers).status_code == 401
        assert gatepost.post("/oauth/clients", token, {}).status_code == 401
        assert gatepost.session.get(f"{gatepost.url}/oauth/userinfo", headers=headers).status_code == 401

    def test_the_log_names_the_token_and_never_contains_it(self, gatepost: Service, token: str) -> None:
        answer = ask(gatepost, token, "clients", account="gatepost")
        log = gatepost.directory.parent / f"{gatepost.directory.name}.log"
        request = answer.headers["X-Request-Id"]
        wait_until(lambda: request in log.read_text(), "the line of the request")
        [line] = [line for line in log.read_text().splitlines() if request in line]
        assert "/operator/clients" in line
        contents = operator_tokens.read(gatepost.opened.service.keys.operator, token)
        assert contents is not None
        assert ids.text("evt", contents.id) in line
        assert token not in log.read_text()

    def test_another_host_is_refused(self, gatepost: Service, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
        assert gatepost.session.get(f"{gatepost.ops}/operator/overview", headers=headers).status_code == 421

    def test_the_page_is_served_without_a_token(self, gatepost: Service) -> None:
        answer = gatepost.session.get(f"{gatepost.ops}/operator")
        assert (answer.status_code, answer.url) == (200, f"{gatepost.ops}/operator/")
        assert "'self'" in answer.headers["Content-Security-Policy"]


class TestCommand:
    def test_a_token_is_recorded_and_can_be_revoked(self, gatepost: Service) -> None:
        made = gatepost.cli_json("operator", "token", "--lifetime", "2h", "--reason", "incident 42")
        assert sorted(made) == ["expires_at", "id", "token"]
        found = read(gatepost, made["token"], "entry", id=ids.with_prefix("evt", made["id"]), account="gatepost")
        entry = found["entry"]
        assert (entry["type"], entry["actor"]) == (operator_tokens.TYPE, "operator")
        assert entry["data"] == {"expires_at": made["expires_at"], "reason": "incident 42"}
        assert made["token"] not in json.dumps(read(gatepost, made["token"], "entries", account="gatepost"))
        assert gatepost.cli_json("operator", "revoke", made["id"]) == {"id": made["id"], "revoked": True}
        assert ask(gatepost, made["token"], "overview").status_code == 401
        assert gatepost.cli("operator", "revoke", made["id"]).stdout == "The token was revoked before.\n"

    def test_the_text_says_where_to_sign_in(self, sqlite_gatepost: Service) -> None:
        done = sqlite_gatepost.cli("operator", "token")
        assert f"Sign in with it at {sqlite_gatepost.ops}/operator/" in done.stdout
        assert done.stderr == ""

    @pytest.mark.parametrize("lifetime", ["0", "59s", "28801s", "9h"])
    def test_lifetimes_are_bounded(self, sqlite_gatepost: Service, lifetime: str) -> None:
        done = sqlite_gatepost.cli("operator", "token", "--lifetime", lifetime, check=False)
        assert done.returncode == 2
        assert "--lifetime: must be from 1m to 8h" in done.stderr

    def test_only_operator_tokens_can_be_revoked(self, sqlite_gatepost: Service) -> None:
        done = sqlite_gatepost.cli("operator", "revoke", ids.new("tok"), check=False)
        assert (done.returncode, "there is no operator token" in done.stderr) == (3, True)


class TestViews:
    def test_the_overview(self, gatepost: Service, token: str) -> None:
        found = read(gatepost, token, "overview")
        assert {key["status"] for key in found["keys"]} >= {"announced", "active"}
        assert all(key["rotates_at"] for key in found["keys"] if key["status"] == "active")
        assert all(node["running"] for node in found["nodes"]) or len(found["nodes"]) > 1
        assert any(worker["running"] for worker in found["workers"])
        assert found["queue"]["age_seconds"] >= 0

    def test_accounts_page_by_page(self, gatepost: Service, token: str, account_name: str) -> None:
        names = [f"op-{account_name}-{letter}" for letter in "abc"]
        for name in names:
            gatepost.account(name)
        gatepost.cli("account", "suspend", names[1])
        page = read(gatepost, token, "accounts", limit=2, cursor=f"op-{account_name}")
        assert [account["name"] for account in page["data"]] == names[:2]
        assert [account["status"] for account in page["data"]] == ["active", "suspended"]
        assert page["next_cursor"] == names[1]
        rest = read(gatepost, token, "accounts", limit=1, cursor=page["next_cursor"])
        assert [account["name"] for account in rest["data"]] == names[2:]

    def test_the_volume_and_the_ledger_of_an_account(self, gatepost: Service, token: str, account_name: str) -> None:
        platform = Platform(gatepost, f"volume-{account_name}")
        with receiver(OK) as healthy:
            platform.connect(healthy.url, "order.paid")
            platform.once(platform.send({"order": 1}, "order.paid"), "succeeded")
        [listed] = read(gatepost, token, "accounts", limit=1, cursor="volume-")["data"]
        assert listed["name"] == platform.name
        assert (listed["status"], listed["ledger_problem"], listed["reachable"]) == ("active", None, True)
        assert (listed["last_hour"]["made"], listed["last_hour"]["unfinished"]["pending"]) == (1, 0)
        wait_until(lambda: self.ledger(gatepost, token, platform.name)["unsealed"] == 0, "a sealed ledger")
        account = read(gatepost, token, "account", account=platform.name)
        assert account["id"] == platform.account
        assert account["deliveries"]["total"]["deliveries"]["made"] == 1
        assert account["counts"] == {"clients": 1, "scopes": 0}
        ledger = account["ledger"]
        assert ledger["problem"] is None
        assert ledger["entries"] == len(gatepost.entries(platform.account))
        assert ledger["head"].startswith(f"{ledger['seals']}:")
        assert ledger["sealed_at"]

    def ledger(self, gatepost: Service, token: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = read(gatepost, token, "account", account=name)["ledger"]
        return found

    def test_clients_scopes_and_tokens(self, gatepost: Service, token: str, account_name: str) -> None:
        account, admin = gatepost.account(account_name)
        admin_token = gatepost.token(admin, "gatepost:clients gatepost:scopes")
        resource = f"https://{account_name}.example"
        body = {"name": f"{account_name}:read", "description": "Read.", "resource": resource}
        assert gatepost.post("/oauth/scopes", admin_token, body).status_code == 201
        other = gatepost.define_client(admin_token, scope=f"{account_name}:read")
        gatepost.token(other, f"{account_name}:read")
        clients = self.all_pages(gatepost, token, "clients", account=account, limit=1)
        assert [client["client_id"] for client in clients] == [admin.id, other.id]
        assert [scope["resource"] for scope in read(gatepost, token, "scopes", account=account)["data"]] == [resource]
        tokens = self.all_pages(gatepost, token, "tokens", account=account_name, client=other.id, limit=1)
        assert [(each["client_id"], each["state"], each["aud"]) for each in tokens] == [(other.id, "active", resource)]
        assert len(self.all_pages(gatepost, token, "tokens", account=account_name)) == 2
        shown = json.dumps([clients, tokens])
        assert not any(secret in shown for secret in (admin.secret, other.secret, "gps_", "digest", "hash"))

    def all_pages(self, gatepost: Service, token: str, view: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = read(gatepost, token, view, **query, **cursor)
            assert len(page["data"]) <= query.get("limit", operator_views.DEFAULT_LIMIT)
            found += page["data"]
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}

    def test_entries_with_filters(self, gatepost: Service, token: str, account_name: str) -> None:
        account, admin = gatepost.account(account_name)
        gatepost.token(admin, "gatepost:clients")
        all_entries = self.all_pages(gatepost, token, "entries", account=account, limit=2)
        assert all_entries == gatepost.entries(account)
        for query, types in (
            ({"type": "oauth.token.*"}, ["oauth.token.issued"]),
            ({"actor": admin.id}, ["oauth.token.issued"]),
            ({"subject": account}, ["account.created"]),
            ({"mentions": admin.id, "type": "oauth.client.created"}, ["oauth.client.created"]),
            ({"until": "2020-01-01T00:00:00Z"}, []),
            ({"since": "2020-01-01T00:00:00Z", "type": "account.created"}, ["account.created"]),
        ):  # fmt: skip
            found = self.all_pages(gatepost, token, "entries", account=account, **query)
            assert [entry["type"] for entry in found] == types, query

    def test_an_entry_by_its_id(self, gatepost: Service, token: str, account_name: str) -> None:
        account, _ = gatepost.account(account_name)
        entry = gatepost.entries(account, 1)[0]
        found: dict[str, Any] = {"entry": None, "next_cursor": ""}
        while found["entry"] is None and found["next_cursor"] is not None:
            cursor = {"cursor": found["next_cursor"]} if found["next_cursor"] else {}
            found = read(gatepost, token, "entry", id=entry["id"], **cursor)
        assert found["entry"] | {"account_name": account_name} == found["entry"]
        assert {name: found["entry"][name] for name in entry} == entry
        assert read(gatepost, token, "entry", id=entry["id"], account=account)["entry"]["id"] == entry["id"]
        assert read(gatepost, token, "entry", id=entry["id"], account="gatepost")["entry"] is None

    @pytest.mark.parametrize(
        ("view", "query", "code", "words"),
        [
            ("overview", {"x": "1"}, "invalid_request", "x: unknown parameter"),
            ("accounts", {"limit": "0"}, "invalid_request", "limit: must be a whole number from 1 to 100"),
            ("accounts", {"limit": "101"}, "invalid_request", "limit: must be"),
            ("clients", {}, "invalid_request", "account: this parameter is required"),
            ("clients", {"account": "nobody-at-all"}, "not_found", "account: no account"),
            ("clients", {"account": "gatepost", "cursor": "x"}, "invalid_request", "cursor: must be a next_cursor"),
            ("entries", {"account": "gatepost", "cursor": "x"}, "invalid_request", "cursor: must be a next_cursor"),
            ("entries", {"account": "gatepost", "since": "today"}, "invalid_request", "since: must be a time"),
            ("entries", {"account": "gatepost", "type": "\0"}, "invalid_request", "NUL"),
            ("tokens", {"account": "gatepost", "client": "x"}, "invalid_request", "client: must be an id"),
            ("entry", {"id": "evt_x"}, "invalid_request", "id: must be an id that starts with evt_"),
        ],
    )  # fmt: skip
    def test_bad_questions(
        self, gatepost: Service, token: str, view: str, query: dict[str, str], code: str, words: str
    ) -> None:
        answer = ask(gatepost, token, view, **query)
        assert (answer.status_code, answer.json()["code"]) == ({"invalid_request": 400, "not_found": 404}[code], code)
        assert words in answer.json()["detail"]
