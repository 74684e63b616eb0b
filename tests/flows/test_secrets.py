"""Client secrets: shown only once, stored as a hash, rotated with an overlap, with the time of their last use."""

import time
from typing import Any

import pytest
import requests

from gatepost import settings
from gatepost.oauth import client_rows
from gatepost.run import app
from tests import service
from tests.service import Client, Service
from tests.waiting import wait_until
from tests.wire import session_from_new_address

SCOPE = "gatepost:deliveries"


class Setting:
    def __init__(self, gatepost: Service) -> None:
        self.gatepost = gatepost
        self.account, first = gatepost.account("secrets")
        self.token = gatepost.token(first, f"gatepost:clients {SCOPE}")

    def define(self) -> Client:
        return self.gatepost.define_client(self.token, scope=SCOPE)

    def post(self, client: Client, **members: Any) -> requests.Response:
        return self.gatepost.post("/oauth/clients", self.token, {"client_id": client.id} | members)

    def shown(self, client: Client) -> list[dict[str, Any]]:
        return list(self.post(client).json()["secrets"])

    def rotate(self, client: Client, how: bool | dict[str, int] = True) -> Client:
        answer = self.post(client, rotate_secret=how)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        return Client(client.id, answer.json()["client_secret"])

    def works(self, client: Client) -> bool:
        with session_from_new_address() as session:
            form = {"grant_type": "client_credentials", "scope": SCOPE}
            headers = {"Authorization": client.basic}
            answer = session.post(f"{self.gatepost.url}/oauth/tokens", data=form, headers=headers)
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200


@pytest.fixture(scope="module")
def setting(gatepost: Service) -> Setting:
    return Setting(gatepost)


def test_a_secret_is_shown_once(setting: Setting) -> None:
    client = setting.define()
    assert client.secret.startswith("gps_")
    assert len(client.secret) == 47  # 256 bits in base64url, after the prefix
    for answer in (setting.post(client), setting.post(client, client_name="renamed")):
        assert answer.status_code == 200
        assert "client_secret" not in answer.json()
        assert client.secret not in answer.text
        assert [set(each) for each in answer.json()["secrets"]] == [{"id", "created_at", "expires_at", "last_used_at"}]


def test_only_the_whole_secret_works(setting: Setting) -> None:
    """No part of it, and nothing after it: not even past the 72 bytes that some hashes look at."""
    client = setting.define()
    secret = client.secret
    wrong = [
        secret[:-1], secret[1:], secret[4:], secret + "a", secret + " ", " " + secret, secret + "a" * 72, secret * 2,
        secret.swapcase(), secret.lower(), secret + "\0", secret + "%00", secret.replace("gps_", "GPS_"),
    ]  # fmt: skip
    assert [text for text in wrong if setting.works(Client(client.id, text))] == []
    assert setting.works(client)


def test_secrets_are_stored_as_hashes(setting: Setting) -> None:
    client = setting.define()
    opened = app.open_for_use(settings.load({}, environment=setting.gatepost.environment))
    try:
        stored = opened.store.read_now(lambda tx: client_rows.load_uncached(tx, client.id))
    finally:
        opened.store.close()
    assert stored is not None
    assert client.secret not in repr(stored)
    [kept] = [each.hash for each in stored.secrets]
    for text in (kept.hex(), kept.hex().upper(), kept.decode("latin-1"), f"gps_{kept.hex()}"):
        assert not setting.works(Client(client.id, text))


def test_both_secrets_work_while_they_overlap(setting: Setting) -> None:
    old = setting.define()
    assert setting.works(old)
    new = setting.rotate(old)
    assert new.secret != old.secret
    assert setting.works(old)
    assert setting.works(new)
    first, second = setting.shown(old)
    assert second["expires_at"] is None
    assert 86_390 <= seconds_until(first["expires_at"]) <= 86_400


def test_without_an_overlap_the_old_one_ends_at_once(setting: Setting) -> None:
    old = setting.define()
    assert setting.works(old)
    new = setting.rotate(old, {"overlap": 0})
    assert not setting.works(old)
    assert setting.works(new)
    assert len(setting.shown(new)) == 1


def test_an_overlap_ends(setting: Setting) -> None:
    old = setting.define()
    new = setting.rotate(old, {"overlap": 2})
    assert setting.works(old)
    wait_until(lambda: not setting.works(old), "the end of the overlap")
    assert setting.works(new)


def test_a_third_secret_ends_the_oldest(setting: Setting) -> None:
    one = setting.define()
    two = setting.rotate(one)
    three = setting.rotate(one)
    assert [setting.works(each) for each in (one, two, three)] == [False, True, True]
    four = setting.rotate(one, {"overlap": 60})
    assert [setting.works(each) for each in (one, two, three, four)] == [False, False, True, True]
    assert seconds_until(setting.shown(four)[0]["expires_at"]) <= 60


def test_rotating_again_does_not_lengthen_an_overlap(setting: Setting) -> None:
    one = setting.define()
    setting.rotate(one, {"overlap": 60})
    [ending, _] = setting.shown(one)
    setting.post(one, client_name="renamed")
    assert setting.shown(one)[0]["expires_at"] == ending["expires_at"]


def test_the_ledger_records_a_new_secret_without_its_value(setting: Setting) -> None:
    client = setting.rotate(setting.define())
    asked = ("audit", "list", "--account", "secrets", "--subject", client.id, "--type", "oauth.client.changed")
    [entry] = setting.gatepost.cli_json(*asked)
    assert entry["data"]["changed"] == ["secrets"]
    assert client.secret not in str(entry)
    assert "hash" not in str(entry)


def test_when_a_secret_was_last_used(setting: Setting) -> None:
    """Written to the minute, a little after, and when a web process stops."""
    old = setting.define()
    new = setting.rotate(old)
    assert [each["last_used_at"] for each in setting.shown(old)] == [None, None]
    gatepost = setting.gatepost
    with service.running(gatepost.directory, gatepost.database, only="web") as beside:
        assert beside.token_answer(new, SCOPE).status_code == 200
    unused, used = setting.shown(old)
    assert unused["last_used_at"] is None
    assert -90 <= seconds_until(used["last_used_at"]) <= 0
    assert used["last_used_at"].endswith(":00.000Z")


def seconds_until(instant: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(instant).timestamp() - time.time()
