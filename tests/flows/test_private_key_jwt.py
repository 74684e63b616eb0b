"""Clients that sign who they are (RFC 7523): what an assertion must be, once, and all that it must not be."""

import hmac
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from joserfc.jwk import ECKey, Key, OKPKey

from gatepost.web.tokens import ASSERTION_TYPE
from tests.assertions import assertion, b64, form, right_claims, signed
from tests.rsa_keys import rsa_key
from tests.service import Service
from tests.web_beside import web_beside
from tests.wire import check_refusal, session_from_new_address

SCOPE = "things.read"
KEY = ECKey.generate_key("P-256", {"kid": "ec"})
ATTACKER = ECKey.generate_key("P-256", {"kid": "ec"})
KEYS: dict[str, Key] = {
    "ec": KEY,
    "rsa": rsa_key({"kid": "rsa"}),
    "ed": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
}
PUBLIC = [key.as_dict(private=False) for key in KEYS.values()]


class Setting:
    def __init__(self, gatepost: Service, name: str) -> None:
        self.gatepost, self.issuer, self.name = gatepost, gatepost.url, name
        _, first = gatepost.account(self.name)
        self.admin = gatepost.token(first, "gatepost:clients gatepost:scopes")
        assert gatepost.post("/oauth/scopes", self.admin, {"name": SCOPE}).status_code == 201
        self.client = self.define(PUBLIC)
        self.other = self.define([ATTACKER.as_dict(private=False)])

    def define(self, keys: list[Any]) -> str:
        members = {"scope": SCOPE, "token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": keys}}
        return self.gatepost.define_client(self.admin, **members).id

    def ask(self, sent: str, **more: str) -> requests.Response:
        with session_from_new_address() as session:
            return session.post(f"{self.issuer}/oauth/tokens", data=form(SCOPE, sent, **more))

    def sign(self, key: Key = KEY, header: dict[str, Any] | None = None, **claims: Any) -> str:
        return signed(key, right_claims(self.client, self.issuer, **claims), **(header or {}))


@pytest.fixture(scope="module")
def setting(gatepost: Service) -> Setting:
    return Setting(gatepost, "private-key-jwt")


@pytest.fixture(scope="module")
def sqlite_setting(sqlite_gatepost: Service) -> Setting:
    """For rules that no store can change."""
    return Setting(sqlite_gatepost, "private-key-jwt-sqlite")


# What is right: how an assertion may differ from the plainest one.
RIGHT: dict[str, Callable[[Setting], str]] = {
    "plain": lambda s: s.sign(),
    "audience is the token endpoint": lambda s: s.sign(aud=f"{s.issuer}/oauth/tokens"),
    "audience is a list of one": lambda s: s.sign(aud=[s.issuer]),
    "RS256": lambda s: s.sign(KEYS["rsa"]),
    "PS256": lambda s: s.sign(KEYS["rsa"], {"alg": "PS256"}),
    "EdDSA": lambda s: s.sign(KEYS["ed"]),
    "no typ": lambda s: s.sign(header={"typ": None}),
    "typ of RFC 7523bis": lambda s: s.sign(header={"typ": "client-authentication+jwt"}),
    "no iat": lambda s: s.sign(iat=None),
    "iat a little ahead": lambda s: s.sign(iat=now() + 8),
    "ends long after, but is fresh": lambda s: s.sign(exp=now() + 86_400),
    "more claims": lambda s: s.sign(nonce="x", scope="everything"),
}


def now() -> int:
    return int(time.time())


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_assertion(sqlite_setting: Setting, name: str) -> None:
    answer = sqlite_setting.ask(RIGHT[name](sqlite_setting))
    assert answer.status_code == 200, answer.text
    assert answer.json()["scope"] == SCOPE


def test_client_id_may_be_sent_with_an_assertion(setting: Setting) -> None:
    assert setting.ask(setting.sign(), client_id=setting.client).status_code == 200
    wrong = setting.ask(setting.sign(), client_id=setting.other)
    check_refusal(wrong, "/oauth/tokens", "invalid_request", "client_id")


def hs256(s: Setting, secret: bytes) -> str:
    head = b64(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "ec"}).encode())
    message = f"{head}.{b64(json.dumps(right_claims(s.client, s.issuer)).encode())}"
    return f"{message}.{b64(hmac.digest(secret, message.encode(), 'sha256'))}"


def unsigned(s: Setting, alg: str, signature: bytes = b"") -> str:
    claims = right_claims(s.client, s.issuer)
    return f"{b64(json.dumps({'alg': alg, 'typ': 'JWT'}).encode())}.{b64(json.dumps(claims).encode())}.{b64(signature)}"


def flipped(token: str) -> str:
    """With one bit of its signature turned over."""
    return token[:-5] + ("A" if token[-5] != "A" else "B") + token[-4:]


def own_token(s: Setting) -> str:
    return str(s.ask(s.sign()).json()["access_token"])


# What is wrong, and the ledger's word for it; none where it does not even name a client, and so belongs to no account.
WRONG: dict[str, tuple[Callable[[Setting], str], str]] = {
    "no exp": (lambda s: s.sign(exp=None), "assertion_expired"),
    "exp over": (lambda s: s.sign(exp=now() - 1), "assertion_expired"),
    "exp too far, no iat": (lambda s: s.sign(iat=None, exp=now() + 600), "assertion_too_old"),
    "iat 0": (lambda s: s.sign(iat=0, exp=now() + 60), "assertion_too_old"),
    "iat 0 and a distant exp": (lambda s: s.sign(iat=0.0, exp=(1 << 40) - 1), "assertion_too_old"),
    "iat over five minutes ago": (lambda s: s.sign(iat=now() - 310, exp=now() + 600), "assertion_too_old"),
    "iat ahead": (lambda s: s.sign(iat=now() + 90, exp=now() + 120), "assertion_expired"),
    "nbf ahead": (lambda s: s.sign(nbf=now() + 90, exp=now() + 120), "assertion_expired"),
    "exp is text": (lambda s: s.sign(exp=str(now() + 60)), "assertion_unreadable"),
    "exp is true": (lambda s: s.sign(exp=True), "assertion_unreadable"),
    "exp is huge": (lambda s: s.sign(exp=10**30), "assertion_unreadable"),
    "iat is a list": (lambda s: s.sign(iat=[now()]), "assertion_unreadable"),
    "no jti": (lambda s: s.sign(jti=None), "assertion_without_jti"),
    "empty jti": (lambda s: s.sign(jti=""), "assertion_without_jti"),
    "jti is a number": (lambda s: s.sign(jti=5), "assertion_without_jti"),
    "long jti": (lambda s: s.sign(jti="a" * 257), "assertion_without_jti"),
    "no audience": (lambda s: s.sign(aud=[]), "assertion_audience"),
    "other audience": (lambda s: s.sign(aud="https://evil.example"), "assertion_audience"),
    "audience with a slash": (lambda s: s.sign(aud=f"{s.issuer}/"), "assertion_audience"),
    "two audiences": (lambda s: s.sign(aud=[s.issuer, "https://evil.example"]), "assertion_audience"),
    "other issuer": (lambda s: s.sign(iss=s.other), "assertion_of_another"),
    "no issuer": (lambda s: s.sign(iss=[]), "assertion_of_another"),
    "alg none": (lambda s: unsigned(s, "none"), "assertion_unreadable"),
    "alg None": (lambda s: unsigned(s, "None"), "assertion_unreadable"),
    "no signature": (lambda s: s.sign().rpartition(".")[0] + ".", "assertion_unreadable"),
    "zero signature": (lambda s: unsigned(s, "ES256", bytes(64)), "assertion_unreadable"),
    "HS256 by the public key as PEM": (lambda s: hs256(s, KEY.as_bytes("PEM", private=False)), "assertion_unreadable"),
    "HS256 by the public key as JWK": (lambda s: hs256(s, json.dumps(PUBLIC[0]).encode()), "assertion_unreadable"),
    "HS256 by nothing": (lambda s: hs256(s, b""), "assertion_unreadable"),
    "key of another client": (lambda s: s.sign(ATTACKER), "assertion_unreadable"),
    "key in the header": (
        lambda s: s.sign(ATTACKER, {"jwk": ATTACKER.as_dict(private=False), "kid": None}),
        "assertion_unreadable",
    ),
    "key by address": (lambda s: s.sign(ATTACKER, {"jku": "https://evil.example/jwks"}), "assertion_unreadable"),
    "certificate by address": (lambda s: s.sign(ATTACKER, {"x5u": "https://evil.example/pem"}), "assertion_unreadable"),
    "unknown kid": (lambda s: s.sign(header={"kid": "nobody"}), "assertion_unreadable"),
    "kid of another key": (lambda s: s.sign(header={"kid": "rsa"}), "assertion_unreadable"),
    "algorithm of another key": (lambda s: s.sign(KEYS["rsa"], {"kid": "ec"}), "assertion_unreadable"),
    "crit": (lambda s: s.sign(header={"crit": ["exp"], "exp": 1}), "assertion_unreadable"),
    "crit, unknown": (lambda s: s.sign(header={"crit": ["x"], "x": 1}), "assertion_unreadable"),
    "unencoded payload": (lambda s: s.sign(header={"crit": ["b64"], "b64": False}), "assertion_unreadable"),
    "typ of an access token": (lambda s: s.sign(header={"typ": "at+jwt"}), "assertion_unreadable"),
    "typ of a DPoP proof": (lambda s: s.sign(header={"typ": "dpop+jwt"}), "assertion_unreadable"),
    "an access token of its own": (own_token, "assertion_unreadable"),
    "one bit off": (lambda s: flipped(s.sign()), "assertion_unreadable"),
    "too long": (lambda s: s.sign(padding="a" * 12_000), ""),
    "deep": (
        lambda s: signed(KEY, b'{"sub": "%s", "a": %s}' % (s.client.encode(), b"[" * 2000 + b"]" * 2000)),
        "",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_assertion(sqlite_setting: Setting, name: str) -> None:
    """All look the same as one of a client that does not exist."""
    answer = sqlite_setting.ask(WRONG[name][0](sqlite_setting))
    check_refusal(answer, "/oauth/tokens", "invalid_client", "client authentication failed")
    stranger = sqlite_setting.ask(assertion(ATTACKER, "cli_" + "0" * 26, sqlite_setting.issuer))
    assert (answer.content, answer.headers["WWW-Authenticate"]) == (
        stranger.content,
        stranger.headers["WWW-Authenticate"],
    )
    assert "Gatepost-Event" not in answer.headers


def test_the_ledger_records_why_an_assertion_failed(sqlite_setting: Setting) -> None:
    sent = {name: sqlite_setting.ask(make(sqlite_setting)).headers["X-Request-Id"] for name, (make, _) in WRONG.items()}
    asked = ("audit", "list", "--account", sqlite_setting.name, "--type", "oauth.token.refused", "--limit", "1000")
    entries = {entry["request"]: entry["data"] for entry in sqlite_setting.gatepost.cli_json(*asked)}
    result = {name: entries.get(request, {}).get("rule", "").partition(" ")[0] for name, request in sent.items()}
    assert result == {name: rule for name, (_, rule) in WRONG.items()}
    assert {(data["error"], data["method"]) for data in entries.values()} == {("invalid_client", "private_key_jwt")}


def test_an_assertion_with_another_clients_subject_is_refused(setting: Setting) -> None:
    assert setting.ask(setting.sign(sub=setting.other)).status_code == 401
    assert setting.ask(setting.sign(sub=setting.other, iss=setting.other)).status_code == 401


def test_an_assertion_is_used_once(setting: Setting) -> None:
    sent = setting.sign()
    assert setting.ask(sent).status_code == 200
    assert setting.ask(sent).status_code == 401
    again = right_claims(setting.client, setting.issuer, jti="the same")
    assert setting.ask(signed(KEY, again)).status_code == 200
    assert setting.ask(signed(KEYS["rsa"], again | {"exp": now() + 90})).status_code == 401


def test_assertion_ids_are_scoped_to_a_client(setting: Setting) -> None:
    for key, client in ((KEY, setting.client), (ATTACKER, setting.other)):
        assert setting.ask(assertion(key, client, setting.issuer, jti="of both")).status_code == 200


def test_of_fifty_concurrent_uses_one_succeeds(setting: Setting) -> None:
    sent = setting.sign()
    with ThreadPoolExecutor(25) as pool:
        statuses = [answer.status_code for answer in pool.map(lambda _: setting.ask(sent), range(50))]
    assert (statuses.count(200), statuses.count(401)) == (1, 49)


def test_another_process_refuses_a_replay(setting: Setting) -> None:
    """The used assertion is in the store, not in the memory of a process."""
    sent = setting.sign()
    assert setting.ask(sent).status_code == 200
    with web_beside(setting.gatepost) as other:
        for one, status in ((setting.sign(), 200), (sent, 401)):
            answer = other.session.post(f"{other.url}/oauth/tokens", data=form(SCOPE, one))
            assert answer.status_code == status, answer.text


@pytest.mark.parametrize("kind", [None, "", "urn:ietf:params:oauth:client-assertion-type:saml2-bearer"])
def test_client_assertion_type_is_required(sqlite_setting: Setting, kind: str | None) -> None:
    sent = form(SCOPE, sqlite_setting.sign()) | {"client_assertion_type": kind or ""}
    answer = sqlite_setting.gatepost.session.post(f"{sqlite_setting.issuer}/oauth/tokens", data=sent)
    check_refusal(answer, "/oauth/tokens", "invalid_request", "client_assertion_type", ASSERTION_TYPE)


def test_a_key_that_was_removed_is_no_longer_accepted(setting: Setting) -> None:
    client = setting.define([KEY.as_dict(private=False)])
    assert setting.ask(assertion(KEY, client, setting.issuer)).status_code == 200
    members = {"client_id": client, "jwks": {"keys": [ATTACKER.as_dict(private=False)]}}
    assert setting.gatepost.post("/oauth/clients", setting.admin, members).status_code == 200
    assert setting.ask(assertion(KEY, client, setting.issuer)).status_code == 401
    assert setting.ask(assertion(ATTACKER, client, setting.issuer)).status_code == 200
