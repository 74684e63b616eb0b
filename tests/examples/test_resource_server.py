"""examples/resource_server.py, running: which tokens and proofs it takes, and how it refuses all others.

Wrong tokens are signed by an issuer of the tests' own; right ones also by Gatepost.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import requests
from joserfc.jwk import ECKey, Key, OctKey, OKPKey

from examples import resource_server
from gatepost.core import ids
from tests.assertions import b64, signed
from tests.examples.programs import running
from tests.login import Platform
from tests.receiver import receiver
from tests.rsa_keys import rsa_key
from tests.service import Service, free_ports
from tests.wire import exchange, request

KEY = ECKey.generate_key("P-256", {"kid": "current", "use": "sig", "alg": "ES256"})
STRANGER = ECKey.generate_key("P-256", {"kid": "current"})
OWN = ECKey.generate_key("P-256")  # of a client, for proofs
OTHER = ECKey.generate_key("P-256")
RSA = rsa_key()
EDWARDS = OKPKey.generate_key("Ed25519")
SHARED = OctKey.generate_key(256)

pytestmark = pytest.mark.xdist_group("example-resource")


class Api(NamedTuple):
    issuer: str
    url: str

    @property
    def things(self) -> str:
        return f"{self.url}/things"

    def token(self, key: Key = KEY, header: Any = None, **changes: Any) -> str:
        """Right but for the changes; a change to None leaves a claim out."""
        now = int(time.time())
        right = {
            "iss": self.issuer, "aud": self.url, "sub": "cli_1", "client_id": "cli_1", "exp": now + 300, "iat": now,
            "jti": ids.new("tok"), "scope": "things:read", "account": "acc_1",
        }  # fmt: skip
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        return signed(key, claims, **({"typ": "at+jwt"} | (header or {})))

    def proof(self, token: str, key: Key = OWN, header: Any = None, **changes: Any) -> str:
        hashed = b64(hashlib.sha256(token.encode()).digest())
        right = {"htm": "GET", "htu": self.things, "iat": int(time.time()), "jti": ids.new("jti"), "ath": hashed}
        claims = {name: value for name, value in (right | changes).items() if value is not None}
        head = {"typ": "dpop+jwt", "jwk": key.as_dict(private=False), "kid": None}
        return signed(key, claims, **(head | (header or {})))

    def get(self, authorization: str | None, proof: str | None = None) -> requests.Response:
        headers = {"Authorization": authorization, "DPoP": proof}
        return requests.get(self.things, headers={name: value for name, value in headers.items() if value is not None})


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    keys = json.dumps({"keys": [KEY.as_dict(private=False)]}).encode()
    [port] = free_ports(1)
    with receiver((200, {"content-type": "application/json"}, keys)) as issuer:
        base = issuer.url.rpartition("/")[0]
        with running("resource_server", "--issuer", base, "--port", str(port)):
            yield Api(base, f"http://127.0.0.1:{port}")


def check(answer: requests.Response, status: int, error: str, scheme: str = "Bearer") -> None:
    assert answer.status_code == status, answer.text
    assert answer.json()["error"] == error, answer.text
    [challenge] = answer.raw.headers.getlist("www-authenticate")
    assert challenge.startswith(f'{scheme} error="{error}"')
    assert 'resource_metadata="' in challenge
    assert "things" not in answer.json(), "nothing is told"


# --- Bearer


def test_a_right_token(api: Api) -> None:
    answer = api.get(f"Bearer {api.token()}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"for": "cli_1", "things": ["a lamp", "a chair"]}


def test_for_several_audiences(api: Api) -> None:
    assert api.get(f"Bearer {api.token(aud=[api.url, api.issuer])}").status_code == 200


def test_the_actor_is_reported(api: Api) -> None:
    assert api.get(f"Bearer {api.token(act={'sub': 'cli_2'})}").json()["by"] == "cli_2"


def now() -> int:
    return int(time.time())


WRONG: dict[str, Callable[[Api], str]] = {
    "empty": lambda _: "",
    "not a token": lambda _: "x",
    "not base64": lambda _: "é.é.é",
    "altered": lambda a: a.token()[:-6] + "AAAAAA",
    "unsigned": lambda a: a.token(header={"alg": "none"}).rpartition(".")[0] + ".",
    "of a stranger": lambda a: a.token(STRANGER),
    "of an unknown key": lambda a: a.token(header={"kid": "unknown"}),
    "without kid": lambda a: a.token(STRANGER, {"kid": None}),
    "with its own key": lambda a: a.token(STRANGER, {"jwk": STRANGER.as_dict(private=False)}),
    "RS256": lambda a: a.token(RSA, {"kid": "current"}),
    "crit": lambda a: a.token(header={"crit": ["x"], "x": 1}),
    "another issuer": lambda a: a.token(iss="https://other.example"),
    "no issuer": lambda a: a.token(iss=None),
    "another audience": lambda a: a.token(aud="https://other.example"),
    "audience with a slash": lambda a: a.token(aud=f"{a.url}/"),
    "no audience": lambda a: a.token(aud=None),
    "expired": lambda a: a.token(exp=now() - 60),
    "no end": lambda a: a.token(exp=None),
    "not yet made": lambda a: a.token(iat=now() + 600),
    "an ID token": lambda a: a.token(header={"typ": "JWT"}),
    "no typ": lambda a: a.token(header={"typ": None}),
    "no scope": lambda a: a.token(scope=None),
    "no client": lambda a: a.token(client_id=None),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token(api: Api, name: str) -> None:
    check(api.get(f"Bearer {WRONG[name](api)}".encode().decode("latin-1")), 401, "invalid_token")


@pytest.mark.parametrize("scope", ["things", "things:reads", "things:write", "THINGS:READ", "things:read,x"])
def test_a_token_without_the_scope(api: Api, scope: str) -> None:
    answer = api.get(f"Bearer {api.token(scope=scope)}")
    check(answer, 403, "insufficient_scope")
    assert 'scope="things:read"' in answer.headers["www-authenticate"]


def test_writing_needs_another_scope(api: Api) -> None:
    reads, writes = (
        requests.post(api.things, b"a cup", headers={"Authorization": f"Bearer {api.token(scope=scope)}"})
        for scope in ("things:read", "things:read things:write")
    )
    check(reads, 403, "insufficient_scope")
    assert writes.status_code == 200, writes.text


def test_a_missing_token_gets_no_error_code(api: Api) -> None:
    """RFC 6750, section 3.1; and where to get one, RFC 9728."""
    answer = api.get(None)
    assert answer.status_code == 401
    assert answer.json() == {}
    bearer, dpop = answer.raw.headers.getlist("www-authenticate")
    assert bearer == f'Bearer scope="things:read", resource_metadata="{api.url}/.well-known/oauth-protected-resource"'
    assert dpop == 'DPoP algs="ES256 EdDSA Ed25519 PS256 RS256"'
    [found] = re.findall(r'resource_metadata="(.+?)"', bearer)
    assert requests.get(found).json()["authorization_servers"] == [api.issuer]


@pytest.mark.parametrize("authorization", ["Basic eDp5", "Bearer", "x"])
def test_other_ways_to_authenticate(api: Api, authorization: str) -> None:
    assert api.get(authorization).status_code in (400, 401)


def test_a_token_in_the_address_is_not_looked_at(api: Api) -> None:
    assert requests.get(api.things, params={"access_token": api.token()}).status_code == 401


# --- DPoP


def bound(api: Api, key: Key = OWN, **changes: Any) -> str:
    return api.token(cnf={"jkt": key.thumbprint()}, **changes)


def test_a_right_proof(api: Api) -> None:
    token = bound(api)
    answer = api.get(f"DPoP {token}", api.proof(token))
    assert answer.status_code == 200, answer.text


def test_a_query_is_not_part_of_a_proof(api: Api) -> None:
    token = bound(api)
    headers = {"Authorization": f"DPoP {token}", "DPoP": api.proof(token)}
    assert requests.get(f"{api.things}?page=2", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("sent", "same"),
    [
        ("http://h", "http://h/"),
        ("HTTP://Example.COM:80/a?b#c", "http://example.com/a"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:/a", "https://example.com/a"),
        ("http://[::1]:80/a", "http://[::1]/a"),
        ("http://h:8091/a/./b/../%7euser%2f%c3", "http://h:8091/a/~user%2F%C3"),
        ("http://h/%2e%2e/a/..", "http://h/"),
        ("http://h/a/.", "http://h/a/"),
        ("http://h/../../a", "http://h/a"),
        ("http://h//a/", "http://h//a/"),
        ("http://h/A", "http://h/A"),
        ("http://h:443/a", "http://h:443/a"),
    ],
)
def test_how_an_address_is_compared(sent: str, same: str) -> None:
    """RFC 9449, section 4.3: normalised as RFC 3986, sections 6.2.2 and 6.2.3, say, without query and fragment."""
    assert resource_server.normalized(sent) == same
    assert resource_server.normalized(same) == same


@pytest.mark.parametrize("sent", ["", "/a", "ftp://h/a", "http://", "http://u@h/", "http://h:99999/", "http://é/"])
def test_what_is_no_address(sent: str) -> None:
    with pytest.raises(ValueError, match=r"htu|[Pp]ort"):
        resource_server.normalized(sent)


@pytest.mark.parametrize("how", ["{0}?a=b", "{0}#c", "HTTP:{1}", "{2}/./things", "{2}/x/../things", "{2}/%74hings"])
def test_a_proof_of_the_same_address_in_another_spelling(api: Api, how: str) -> None:
    token = api.token(cnf={"jkt": OWN.thumbprint()})
    htu = how.format(api.things, api.things.removeprefix("http:"), api.url)
    assert api.get(f"DPoP {token}", api.proof(token, htu=htu)).status_code == 200


@pytest.mark.parametrize("how", ["{0}/", "{0}%2f", "{1}/Things", "{1}//things", "{1}/things/..", "https:{2}", "{0}x"])
def test_a_proof_of_another_address(api: Api, how: str) -> None:
    token = api.token(cnf={"jkt": OWN.thumbprint()})
    htu = how.format(api.things, api.url, api.things.removeprefix("http:"))
    check(api.get(f"DPoP {token}", api.proof(token, htu=htu)), 401, "invalid_dpop_proof", "DPoP")


@pytest.mark.parametrize(
    ("key", "alg"),
    [(OWN, "ES256"), (RSA, "PS256"), (RSA, "RS256"), (EDWARDS, "EdDSA"), (EDWARDS, "Ed25519")],
)
def test_proofs_by_keys_of_every_kind(api: Api, key: Key, alg: str) -> None:
    _check_proofs(api, key, alg)


def test_proofs_by_a_large_rsa_key(api: Api) -> None:
    _check_proofs(api, rsa_key(bits=4096), "PS256")


def _check_proofs(api: Api, key: Key, alg: str) -> None:
    token = api.token(cnf={"jkt": key.thumbprint()})
    assert api.get(f"DPoP {token}", api.proof(token, key, {"alg": alg})).status_code == 200
    other = api.token(cnf={"jkt": OTHER.thumbprint()})
    answer = api.get(f"DPoP {other}", api.proof(other, key, {"alg": alg}))
    check(answer, 401, "invalid_dpop_proof", "DPoP")


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_an_rsa_key_of_a_proof_has_a_size() -> None:
    modulus = RSA.public_key.public_numbers().n
    for bits, right in ((2048, True), (2047, False), (1024, False)):
        shorter = (modulus >> (2048 - bits)) | 1
        jwk = {"kty": "RSA", "e": "AQAB", "n": b64(shorter.to_bytes(256, "big").lstrip(b"\0"))}
        if right:
            assert resource_server.proof_key(jwk).key_type == "RSA"
        else:
            with pytest.raises(ValueError, match="2048 bits"):
                resource_server.proof_key(jwk)


def test_a_proof_works_once(api: Api) -> None:
    token = bound(api)
    proof = api.proof(token)
    assert api.get(f"DPoP {token}", proof).status_code == 200
    check(api.get(f"DPoP {token}", proof), 401, "invalid_dpop_proof", "DPoP")


def test_a_bound_token_is_no_bearer_token(api: Api) -> None:
    token = bound(api)
    for proof in (None, api.proof(token)):
        check(api.get(f"Bearer {token}", proof), 401, "invalid_token", "DPoP")


def test_a_bearer_token_is_not_bound(api: Api) -> None:
    token = api.token()
    check(api.get(f"DPoP {token}", api.proof(token)), 401, "invalid_token")


WRONG_PROOFS: dict[str, Callable[[Api, str], str | None]] = {
    "none": lambda _a, _t: None,
    "empty": lambda _a, _t: "",
    "not a token": lambda _a, _t: "x",
    "of another key": lambda a, t: a.proof(t, OTHER),
    "of another key, with our jwk": lambda a, t: a.proof(t, OTHER, {"jwk": OWN.as_dict(private=False)}),
    "private key": lambda a, t: a.proof(t, header={"jwk": OWN.as_dict(private=True)}),
    "no key": lambda a, t: a.proof(t, header={"jwk": None}),
    "a key that is none": lambda a, t: a.proof(t, header={"jwk": "x"}),
    "an RSA key": lambda a, t: a.proof(t, RSA, {"alg": "PS256"}),
    "a key that both share": lambda a, t: a.proof(t, SHARED, {"jwk": SHARED.as_dict()}),
    "unsigned": lambda a, t: a.proof(t, header={"alg": "none"}).rpartition(".")[0] + ".",
    "altered": lambda a, t: a.proof(t)[:-6] + "AAAAAA",
    "typ": lambda a, t: a.proof(t, header={"typ": "JWT"}),
    "another method": lambda a, t: a.proof(t, htm="POST"),
    "another address": lambda a, t: a.proof(t, htu=f"{a.url}/other"),
    "another host": lambda a, t: a.proof(t, htu="https://other.example/things"),
    "old": lambda a, t: a.proof(t, iat=now() - 300),
    "of the future": lambda a, t: a.proof(t, iat=now() + 300),
    "no time": lambda a, t: a.proof(t, iat=None),
    "a time that is none": lambda a, t: a.proof(t, iat="now"),
    "of another token": lambda a, _t: a.proof(a.token()),
    "of no token": lambda a, t: a.proof(t, ath=None),
    "no id": lambda a, t: a.proof(t, jti=None),
    "the token itself": lambda _a, t: t,
}


@pytest.mark.parametrize("name", WRONG_PROOFS)
def test_a_wrong_proof(api: Api, name: str) -> None:
    token = bound(api)
    check(api.get(f"DPoP {token}", WRONG_PROOFS[name](api, token)), 401, "invalid_dpop_proof", "DPoP")


def test_two_proofs(api: Api) -> None:
    token = bound(api)
    proofs = [f"DPoP: {api.proof(token)}" for _ in range(2)]
    answer = exchange(api.url, request("GET /things HTTP/1.0", f"Authorization: DPoP {token}", *proofs))
    assert answer.status == 401
    assert json.loads(answer.body)["error"] == "invalid_dpop_proof"


def test_two_tokens(api: Api) -> None:
    tokens = [f"Authorization: Bearer {api.token()}" for _ in range(2)]
    answer = exchange(api.url, request("GET /things HTTP/1.0", *tokens))
    assert answer.status == 400
    assert json.loads(answer.body)["error"] == "invalid_request"


# --- with Gatepost


def test_tokens_of_gatepost(sqlite_gatepost: Service) -> None:
    """The key set is fetched; another API's tokens and ID tokens are refused."""
    platform = Platform(sqlite_gatepost, "example-resource")
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    platform.define_scope(name="things:here", resource=url)
    platform.define_scope(name="things:read", resource=url, redefine=True)
    client = platform.define(
        grant_types=["client_credentials", "authorization_code"], scope="openid things:read things:here things:write"
    )
    api = Api(sqlite_gatepost.url, url)
    with running("resource_server", "--issuer", sqlite_gatepost.url, "--port", str(port)):
        assert api.get(f"Bearer {sqlite_gatepost.token(client, 'things:read')}").json()["for"] == client.id
        check(api.get(f"Bearer {sqlite_gatepost.token(client, 'things:here')}"), 403, "insufficient_scope")
        check(api.get(f"Bearer {sqlite_gatepost.token(client, 'things:write')}"), 401, "invalid_token")
        tokens = platform.redeem(
            platform.code(platform.auth_request(client, scope="openid things:read")), client
        ).json()
        assert api.get(f"Bearer {tokens['access_token']}").json()["for"] == f"{platform.account}.ada"
        check(api.get(f"Bearer {tokens['id_token']}"), 401, "invalid_token")


def test_keys_that_cannot_be_had() -> None:
    """It is not the token's fault; and it is asked again."""
    port, nobody = free_ports(2)
    api = Api(f"http://127.0.0.1:{nobody}", f"http://127.0.0.1:{port}")
    with running("resource_server", "--issuer", api.issuer, "--port", str(port)):
        assert [api.get(f"Bearer {api.token()}").status_code for _ in range(2)] == [503, 503]
        assert api.get(None).status_code == 401
