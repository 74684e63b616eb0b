"""The log: one line for each request and each attempt, and never a secret in it, in the ledger or on /metrics.

A whole run uses everything that has a secret, rightly and wrongly, and what is issued or sent is noted as it passes.
Then none of it may be anywhere that people look.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests
from joserfc.jwk import ECKey

from tests import service
from tests.assertions import assertion, form
from tests.figures import Figures
from tests.flows.test_delivery import Platform
from tests.flows.test_jwt_bearer import KEY, Workload
from tests.flows.test_token_exchange import Chain
from tests.login import CALLBACK, VERIFIER, Browser, redirect_target
from tests.proofs import Prover
from tests.receiver import OK, Raw, hangs_up, receiver
from tests.service import Client, Service

pytestmark = pytest.mark.xdist_group("logs")

# Members and parameters whose values are for one pair of eyes.
SECRET = {
    "access_token", "refresh_token", "id_token", "client_secret", "secret", "code", "code_verifier", "assertion",
    "client_assertion", "subject_token", "actor_token", "token", "handoff", "interaction", "request_uri",
    "id_token_hint",
}  # fmt: skip
IN_THE_PATH = "who-knows-this-may-write-to-us"
SHORTEST = 16  # characters: what is shorter is nothing that was issued


@dataclass
class Witness:
    """Records every secret that is sent or received."""

    noted: dict[str, str] = field(default_factory=dict)  # the secret, and what it was

    def note(self, what: str, value: str) -> None:
        if len(value) >= SHORTEST:
            self.noted[value] = what

    def look(self, answer: requests.Response) -> None:
        self._look_at_sent(answer.request)
        for name, cookie in answer.cookies.items():
            self.note(f"cookie {name}", str(cookie))
        self._look_at_pairs(urlsplit(answer.headers.get("Location", "")).query)
        if "json" in answer.headers.get("Content-Type", ""):
            self._look_at_json(answer.json())

    def _look_at_sent(self, sent: requests.PreparedRequest) -> None:
        for name in ("Authorization", "DPoP", "Cookie"):
            for part in re.split(r"[ ;=]+", sent.headers.get(name, "")):
                self.note(name, part)
        self._look_at_pairs(urlsplit(str(sent.url)).query)
        body = sent.body.decode("utf-8", "replace") if isinstance(sent.body, bytes) else str(sent.body or "")
        if body.startswith("{"):
            try:
                self._look_at_json(json.loads(body))
            except ValueError:
                self.note("no JSON", body)
        else:
            self._look_at_pairs(body)

    def _look_at_pairs(self, text: str) -> None:
        for name, value in parse_qsl(text):
            if name in SECRET:
                self.note(name, value)

    def _look_at_json(self, found: Any) -> None:
        if isinstance(found, list):
            for each in found:
                self._look_at_json(each)
        elif isinstance(found, dict):
            for name, value in found.items():
                if name in SECRET and isinstance(value, str):
                    self.note(name, value)
                self._look_at_json(value)

    def seen_in(self, text: str) -> list[str]:
        """What of it is there: as it is, or the part of it that makes it one."""
        return sorted({what for value, what in self.noted.items() for part in _parts(value) if part in text})


def _parts(value: str) -> list[str]:
    """Of a JWT the signature, of others what follows their prefix."""
    bare = re.sub(r"^(gps|gpr|whsec|gpc)_", "", value)
    return [value, bare, *([value.rpartition(".")[2]] if value.count(".") == 2 else [])]


@dataclass
class Run:
    gatepost: Service
    witness: Witness
    accounts: list[str]
    lines: list[dict[str, Any]]
    log: str
    metrics: str
    traces: bytes
    answers: int


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    witness, directory = Witness(), tmp_path_factory.mktemp("logs") / "data"
    answers: list[requests.Response] = []
    with ExitStack() as stack:
        collector = stack.enter_context(receiver((200, {}, b"")))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/hooks"))
        gatepost = stack.enter_context(service.running(directory))
        send = requests.Session.send

        def noting(session: requests.Session, request: Any, **options: Any) -> requests.Response:
            answer = send(session, request, **options)
            if str(request.url).startswith((gatepost.url, f"{gatepost.ops}/events")):
                witness.look(answer)
                answers.append(answer)
            return answer

        patch.setattr(requests.Session, "send", noting)
        accounts = [use_people(gatepost, witness), use_workload(gatepost, stack), use_webhooks(gatepost, witness)]
        use_wrongly(gatepost, witness)
        metrics = Figures(gatepost.ops).text()
        assert gatepost.stop() == 0  # everything is written
        log = Path(f"{directory}.log").read_text()
        lines = [json.loads(line) for line in log.splitlines()]
        traces = b"".join(request.body for request in collector.requests)
        yield Run(gatepost, witness, accounts, lines, log, metrics, traces, len(answers))


# --- the run


def use_people(gatepost: Service, witness: Witness) -> str:
    """Codes, refresh tokens, ID tokens, handoffs, cookies, assertions, proofs, exchanges."""
    chain = Chain(gatepost, "logs-people")
    witness.note("first secret", chain.first.secret)
    browser = Browser()
    interaction = chain.interaction(browser, chain.auth_request())
    handoff = chain.handoff(interaction)
    _, query = redirect_target(chain.submit_handoff(browser, handoff))
    assert chain.submit_handoff(browser, handoff).status_code == 400, "it was used"
    given = chain.redeem(query["code"]).json()
    chain.redeem(query["code"])  # again: what it gave is taken back
    given = chain.tokens()
    refreshed = chain.refresh(given["refresh_token"]).json()
    again = chain.refresh(refreshed["refresh_token"]).json()
    assert chain.refresh(given["refresh_token"]).status_code == 400, "reused"
    given = chain.tokens()
    authorization = {"Authorization": f"Bearer {given['access_token']}"}
    assert gatepost.session.get(f"{gatepost.url}/oauth/userinfo", headers=authorization).status_code == 200
    assert chain.introspect(given["access_token"])["active"]
    chain.exchanged(given["access_token"])
    pushed = chain.post("par", chain.client, **chain.auth_request()).json()
    chain.authorize(Browser(), {"client_id": chain.client.id, "request_uri": pushed["request_uri"]})
    chain.authorize(Browser(), chain.auth_request(id_token_hint=given["id_token"], state="a state" * 5))
    chain.post("revoke", chain.client, token=given["refresh_token"])
    chain.post("revoke", chain.client, token=again.get("access_token", ""))
    key = ECKey.generate_key("P-256", {"kid": "signing"})
    keys = {"keys": [key.as_dict(private=False)]}
    signing = chain.define(
        grant_types=["client_credentials"], redirect_uris=None, scope="things:read", jwks=keys,
        token_endpoint_auth_method="private_key_jwt",
    )  # fmt: skip
    sent = assertion(key, signing.id, gatepost.url)
    for expected in (200, 401):  # once
        answer = gatepost.session.post(f"{gatepost.url}/oauth/tokens", data=form("things:read", sent))
        assert answer.status_code == expected, answer.text
    prover = Prover(gatepost.url)
    machine = chain.define(grant_types=["client_credentials"], redirect_uris=None, scope="things:read")
    assert gatepost.token_answer(machine, "things:read", prover.headers()).status_code == 200
    rotated = gatepost.post("/oauth/clients", chain.admin, {"client_id": machine.id, "rotate_secret": True})
    witness.note("rotated secret", rotated.json()["client_secret"])
    return chain.name


def use_workload(gatepost: Service, stack: ExitStack) -> str:
    workload = Workload(gatepost, "logs-workload", stack)
    for right in (True, False):
        answer = workload.ask(workload.sign(KEY, aud=gatepost.url if right else "https://somewhere.else"))
        assert (answer.status_code == 200) is right, answer.text
    return workload.name


def use_webhooks(gatepost: Service, witness: Witness) -> str:
    """Signing secrets of each kind, ours and theirs; headers and URLs that are secrets; answers that repeat them."""
    platform = Platform(gatepost, "logs-webhooks")
    theirs, key = "whsec_dGhlaXJzIGJlZm9yZSBhbmQgbm93IG91cnM=", "an-api-key-of-the-receiver"
    witness.note("header", key)
    with receiver([(500, {}, key.encode()), OK]) as found, receiver(Raw(hangs_up)) as rude:
        plain = platform.connect(
            f"{found.url}/{IN_THE_PATH}", "a.b", secret=theirs, headers={"X-Api-Key": key}, retry_schedule=[1]
        )
        platform.connect(rude.url, "c.d", signing="v1a", retry_schedule=[])
        platform.once(platform.send({"n": 1}, "a.b"), "succeeded", attempts=2)
        platform.redefine(plain, rotate_secret=True)
        platform.once(platform.send({"n": 2}, "a.b"), "succeeded")
        platform.once(platform.send({"n": 3}, "c.d"), "failed")
    return platform.name


def use_wrongly(gatepost: Service, witness: Witness) -> None:
    """Secrets where none belong. Of each request a refusal is expected, and nothing of it may be repeated."""
    _, client = gatepost.account("logs-wrongly")
    witness.note("secret", client.secret)
    token = gatepost.token(client, "gatepost:clients gatepost:scopes gatepost:endpoints gatepost:events")
    url, session = gatepost.url, gatepost.session
    tokens, events = f"{url}/oauth/tokens", f"{gatepost.ops}/events"
    right = {"Authorization": client.basic}
    refused = [
        gatepost.token_answer(Client(client.secret, client.id), "gatepost:clients"),  # the two exchanged
        gatepost.token_answer(Client(client.id, client.secret[:-1] + "x"), "gatepost:clients"),
        gatepost.token_answer(client, client.secret),
        session.post(tokens, data={"grant_type": client.secret}, headers=right),
        session.post(tokens, data={"grant_type": "client_credentials", "client_id": client.secret, "scope": "x"}),
        session.post(tokens, data={client.secret: "x", "grant_type": "refresh_token"}, headers=right),
        session.post(tokens, data={"grant_type": "client_credentials", "resource": client.secret}, headers=right),
        session.post(tokens, data=[("token", token), ("token", token)], headers=right),
        session.post(tokens, data=client.secret, headers=right),
        session.get(f"{tokens}?{urlencode({'client_secret': client.secret})}"),
        session.get(f"{url}/{client.secret}"),
        session.get(f"{url}/oauth/{token}"),
        session.request("BREW", f"{url}/{token}"),
        session.get(f"{url}/oauth/authorize", params={"client_id": client.secret, "redirect_uri": CALLBACK}),
        session.get(f"{url}/oauth/authorize", params={"handoff": token}),
        session.post(f"{url}/oauth/clients", json={}, headers={"Authorization": f"Token {token}"}),
        session.post(f"{url}/oauth/clients", json={}, headers={"Authorization": f"Bearer {token[:-2]}"}),
        session.post(f"{url}/oauth/clients", json={}, headers={"Authorization": f"DPoP {token}", "DPoP": token}),
        session.post(f"{url}/oauth/clients", data=f'{{"{client.secret}', headers={"Authorization": f"Bearer {token}"}),
        gatepost.post("/oauth/clients", token, {"scope": 1, "client_secret": client.secret}),
        gatepost.post("/oauth/scopes", token, {"name": f"{client.secret} {VERIFIER}"}),
        gatepost.post("/webhooks/endpoints", token, {"url": f"ftp://x/{client.secret}", "secret": client.secret}),
        gatepost.post("/webhooks/endpoints", token, {"url": "http://127.0.0.1:9999/", "secret": client.secret}),
        session.post(events, json={client.secret: 1}, headers={"Authorization": f"Bearer {token}"}),
        session.post(events, json={"id": "1"}, headers={"Authorization": f"Bearer {client.secret}"}),
    ]  # fmt: skip
    assert [answer.status_code for answer in refused if answer.status_code < 400] == []


# --- what is there, and what is not


def test_the_run_had_something_to_hide(run: Run) -> None:
    """Every kind of it: a test that notes nothing finds nothing."""
    kinds = set(run.witness.noted.values())
    expected = SECRET - {"actor_token"} | {"Authorization", "DPoP", "Cookie", "header", "no JSON"}
    assert expected <= kinds
    assert any(kind.startswith("cookie ") for kind in kinds)
    assert len(run.witness.noted) > 60


def test_no_secret_is_in_the_log(run: Run) -> None:
    assert run.witness.seen_in(run.log) == []


def test_no_url_of_a_receiver_is_in_the_log_or_a_span(run: Run) -> None:
    """It may be all that is needed to write to it. The account's own ledger tells which one was defined."""
    assert IN_THE_PATH not in run.log + run.metrics
    assert IN_THE_PATH.encode() not in run.traces


def test_no_secret_is_on_the_metrics_page(run: Run) -> None:
    assert run.witness.seen_in(run.metrics) == []


def test_no_secret_is_in_a_span(run: Run) -> None:
    assert b"POST /oauth/tokens" in run.traces
    assert run.witness.seen_in(run.traces.decode("latin-1")) == []


@pytest.mark.parametrize("name", ["logs-people", "logs-workload", "logs-webhooks", "logs-wrongly"])
def test_no_secret_is_in_the_ledger(run: Run, name: str) -> None:
    exported = run.gatepost.cli("audit", "export", "--account", name).stdout
    assert exported.count("\n") > 5
    assert run.witness.seen_in(exported) == []


def test_a_secret_would_be_found(run: Run) -> None:
    """Whole, without its prefix, or the signature of a token alone."""
    secret = next(value for value, what in run.witness.noted.items() if what == "client_secret")
    token = next(value for value, what in run.witness.noted.items() if what == "access_token")
    for result in (secret, secret.removeprefix("gps_"), f"x{token}x", token.rpartition(".")[2]):
        assert run.witness.seen_in(result), result


# --- the lines themselves


def test_one_line_for_each_request(run: Run) -> None:
    reported = [each for each in run.lines if each["event"] == "request.answered"]
    assert len(reported) == run.answers
    assert len({each["request"] for each in reported}) == len(reported)
    for each in reported:
        assert {"level", "timestamp", "method", "path", "status", "ms", "source", "trace"} <= set(each)
        assert each["source"] == "127.0.0.1"
        assert each["path"] == "" or each["path"].startswith(("/oauth/", "/webhooks/", "/.well-known/", "/events"))
    issued = [each for each in reported if each["path"] == "/oauth/tokens" and each["status"] == 200]
    assert all({"entry", "account", "client", "grant_type"} <= set(each) for each in issued)
    refused = [each for each in reported if each["status"] in (400, 401) and each["path"].startswith("/oauth/tok")]
    assert all(each["error"] for each in refused)


def test_one_line_for_each_attempt(run: Run) -> None:
    reported = [each for each in run.lines if each["event"] == "delivery.attempted"]
    shown = ("type", "attempt", "outcome", "response_code", "failure")
    assert [tuple(each.get(name) for name in shown) for each in reported] == [
        ("a.b", 1, "failed", 500, None),
        ("a.b", 2, "succeeded", 200, None),
        ("a.b", 1, "succeeded", 200, None),
        ("c.d", 1, "failed", None, "first_byte"),
    ]  # fmt: skip
    assert [each["level"] for each in reported] == ["warning", "info", "info", "warning"]


def test_every_line_is_json_with_a_name_a_level_and_a_time(run: Run) -> None:
    assert all({"event", "level", "timestamp"} <= set(each) for each in run.lines)
    assert not [each for each in run.lines if each["level"] == "error"]
