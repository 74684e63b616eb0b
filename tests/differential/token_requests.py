"""Bad requests to the token endpoint: what is asked, how the client shows who it is, codes, refresh tokens, proofs."""

import hmac
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

from joserfc.jwk import ECKey, OctKey, RSAKey

from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.web.tokens import ASSERTION_TYPE
from tests.assertions import b64
from tests.differential.shape import (
    CODE,
    MACHINE,
    REFRESH,
    Bad,
    By,
    Value,
    authorization,
    basic,
    header,
    key,
    named,
    post,
    token,
    unauthenticated,
)
from tests.differential.sides import OTHER_KEY, PROOF_KEY, RSA, Side, thumbprint
from tests.login import VERIFIER, challenge

JSON = "application/json"
P384 = ECKey.generate_key("P-384")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library would rather not
    WEAK = RSAKey.generate_key(1024)
SECRET_KEY = OctKey.import_key("a key that both of us would have to know")


def now() -> int:
    return int(time.time())


# --- what is asked, by a client that is who it says

ASKED: dict[str, Bad] = {
    "nothing": token({}),
    "an empty body without a media type": token({}, body=b"", media_type=""),
    "no grant_type": token(grant_type=None),
    "an empty grant_type": token(grant_type=""),
    "grant_type twice": token(grant_type=["client_credentials", "client_credentials"]),
    "two grant_types": token(grant_type=["client_credentials", "refresh_token"]),
    "an unknown grant_type": token(grant_type="magic"),
    "a grant_type in capitals": token(grant_type="CLIENT_CREDENTIALS"),
    "a grant_type with a space after it": token(grant_type="client_credentials "),
    "the password grant": token(grant_type="password", username="ada", password="secret"),
    "the implicit grant": token(grant_type="implicit"),
    "a device code": token(grant_type="urn:ietf:params:oauth:grant-type:device_code", device_code="x"),
    "a backchannel request": token(grant_type="urn:openid:params:grant-type:ciba", auth_req_id="x"),
    "a SAML assertion": token(grant_type="urn:ietf:params:oauth:grant-type:saml2-bearer", assertion="x"),
    "token exchange without that grant": token(
        grant_type=TOKEN_EXCHANGE, subject_token="x", subject_token_type="urn:ietf:params:oauth:token-type:access_token"
    ),
    "a JWT assertion without that grant": token(grant_type=JWT_BEARER, assertion="a.b.c"),
    "a machine with a code": token(CODE, basic("machine")),
    "a machine with a refresh token": token(REFRESH, basic("machine")),
    "a public client for itself": token(MACHINE, named("public")),
    "by GET": token(method="GET", in_query=True),
    "by PUT": token(method="PUT"),
    "by DELETE": token(method="DELETE"),
    "by PATCH": token(method="PATCH"),
    "parameters in the query": token(in_query=True),
    "as JSON": token(media_type=JSON, body=b'{"grant_type": "client_credentials", "scope": "things:read"}'),
    "as plain text": token(media_type="text/plain"),
    "as multipart": token(media_type="multipart/form-data; boundary=x", body=b"--x--"),
    "without a media type": token(media_type=""),
    "a media type that is none": token(media_type="form"),
    "a byte that is not UTF-8": token(body=b"grant_type=client_credentials&scope=%ff"),
    "a NUL": token(body=b"grant_type=client_credentials&scope=things:read%00"),
    "a percent sign alone": token(body=b"grant_type=client_credentials&scope=%"),
    "a body too large": token(scope="x" * 70_000),
    "no scope": token(scope=None),
    "an empty scope": token(scope=""),
    "scope twice": token(scope=["things:read", "things:write"]),
    "an unknown scope": token(scope="things:everything"),
    "a known and an unknown scope": token(scope="things:read things:everything"),
    "a scope that is not the client's": token(MACHINE, basic("narrow"), scope="things:write"),
    "openid for a machine": token(scope="openid"),
    "offline_access for a machine": token(scope="offline_access"),
    "scopes with two spaces between": token(scope="things:read  things:write"),
    "a scope with a space before it": token(scope=" things:read"),
    "a quote in the scope": token(scope='things:"read'),
    "a backslash in the scope": token(scope="things:\\read"),
    "a line end in the scope": token(scope="things:read\nthings:write"),
    "a scope beyond ASCII": token(scope="things:réad"),
    "a scope of the service's own": token(scope="gatepost:clients"),
    "an unknown resource": token(resource="https://other.example"),
    "a relative resource": token(resource="/api"),
    "a resource with a fragment": token(resource=lambda side: f"{side.api}#part"),
    "two resources": token(resource=lambda side: [side.api, "https://other.example"]),
}

# --- how the client shows who it is


def wrong(role: str = "basic") -> By:
    return basic(role, "gps_of-nobody")


def raw_basic(change: Callable[[str], str]) -> By:
    """The right header, spoilt."""

    def show(side: Side) -> Any:
        return authorization(change(side.clients["basic"].basic))(side)

    return show


SHOWN: dict[str, Bad] = {
    "nothing shown": token(MACHINE, unauthenticated),
    "a client nobody knows": token(MACHINE, header("nobody:secret")),
    "a wrong secret": token(MACHINE, wrong()),
    "no secret": token(MACHINE, basic(secret="")),
    "no client": token(MACHINE, header(":secret")),
    "no colon": token(MACHINE, header("nobody")),
    "nothing after Basic": token(MACHINE, authorization("Basic")),
    "a space after Basic": token(MACHINE, authorization("Basic ")),
    "not base64": token(MACHINE, authorization("Basic !!!")),
    "not UTF-8 in base64": token(MACHINE, header(b"\xff\xfe:secret")),
    "a percent sign alone in base64": token(MACHINE, header("nobody:100%")),
    "two spaces after Basic": token(MACHINE, raw_basic(lambda right: right.replace(" ", "  "))),
    "a secret with one more character": token(MACHINE, raw_basic(lambda right: right.rstrip("=") + "AAAA")),
    "a secret that stops early": token(MACHINE, raw_basic(lambda right: right[:-8])),
    "the secret of another client": token(
        MACHINE, lambda side: header(f"{side.clients['basic'].id}:{side.clients['other'].secret}")(side)
    ),
    "a bearer token instead": token(MACHINE, authorization("Bearer abc")),
    "digest instead": token(MACHINE, authorization('Digest username="nobody"')),
    "Authorization twice": token(
        MACHINE, lambda side: authorization(side.clients["basic"].basic, side.clients["other"].basic)(side)
    ),
    "a client of post by basic": token(MACHINE, basic("post")),
    "a client of basic by post": token(MACHINE, post("basic")),
    "by post, a wrong secret": token(MACHINE, post(secret="gps_of-nobody")),
    "by post, an empty secret": token(MACHINE, post(client_secret="")),
    "by post, no client_id": token(MACHINE, post(client_id=None)),
    "by post, client_secret twice": token(
        MACHINE, lambda side: post(client_secret=[side.clients["post"].secret] * 2)(side)
    ),
    "by post, two client_ids": token(
        MACHINE, lambda side: post(client_id=[side.clients[role].id for role in ("post", "other")])(side)
    ),
    "by basic and by post": token(MACHINE, basic(client_secret="gps_of-nobody")),
    "by basic and by an assertion": token(
        MACHINE, basic(client_assertion="a.b.c", client_assertion_type=ASSERTION_TYPE)
    ),
    "by post and by an assertion": token(MACHINE, post(client_assertion="a.b.c", client_assertion_type=ASSERTION_TYPE)),
    "by basic, with another client_id": token(MACHINE, lambda side: basic(client_id=side.clients["other"].id)(side)),
    "a public client nobody knows": token(CODE, unauthenticated, client_id="nobody"),
    "a public client with a secret": token(CODE, named("public", client_secret="secret")),
    "a public client by basic": token(CODE, wrong("public")),
    "a client with a secret that shows none": token(MACHINE, named("basic")),
    "a client with a key that shows none": token(MACHINE, named("key")),
    "a client with a key by basic": token(MACHINE, wrong("key")),
}


# --- assertions


def by_public_key(side: Side) -> str:
    """Signed with HS256, the public key as the secret."""
    head = b64(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    message = f"{head}.{side.assertion().split('.')[1]}"
    return f"{message}.{b64(hmac.digest(RSA.as_bytes('PEM', private=False), message.encode(), 'sha256'))}"


def unsigned(side: Side) -> str:
    head = b64(json.dumps({"alg": "none", "typ": "JWT"}).encode())
    return f"{head}.{side.assertion().split('.')[1]}."


def asserted(made: Callable[[Side], str], **form: Value) -> Bad:
    return token(MACHINE, key(made, **form))


def twice_used(side: Side) -> str:
    made = side.assertion()
    first = key(lambda _side: made)(side).form
    result = side.post("tokens", {**first, "grant_type": "client_credentials", "scope": "things:read"})
    assert result.status_code == 200, result.text
    return made


ASSERTED: dict[str, Bad] = {
    "no JWT": asserted(lambda side: "assertion"),
    "two parts": asserted(lambda side: side.assertion().rpartition(".")[0]),
    "no signature": asserted(lambda side: side.assertion().rpartition(".")[0] + "."),
    "alg none": asserted(unsigned),
    "HS256 with the public key": asserted(by_public_key),
    "another key": asserted(lambda side: side.assertion(OTHER_KEY)),
    "a key in its header": asserted(
        lambda side: side.assertion(OTHER_KEY, header={"jwk": OTHER_KEY.as_dict(private=False)})
    ),
    "an unknown kid": asserted(lambda side: side.assertion(header={"kid": "unknown"})),
    "one bit changed": asserted(lambda side: side.assertion()[:-6] + "AAAAAA"),
    "an unknown crit": asserted(lambda side: side.assertion(header={"crit": ["x"], "x": 1})),
    "the type of an access token": asserted(lambda side: side.assertion(header={"typ": "at+jwt"})),
    "the type of a proof": asserted(lambda side: side.assertion(header={"typ": "dpop+jwt"})),
    "RS384": asserted(lambda side: side.assertion(RSA, header={"alg": "RS384"})),
    "no exp": asserted(lambda side: side.assertion(exp=None)),
    "exp is over": asserted(lambda side: side.assertion(exp=now() - 60)),
    "exp is text": asserted(lambda side: side.assertion(exp=str(now() + 60))),
    "iat is ahead": asserted(lambda side: side.assertion(iat=now() + 120, exp=now() + 180)),
    "nbf is ahead": asserted(lambda side: side.assertion(nbf=now() + 120, exp=now() + 180)),
    "it lives for a day, without iat": asserted(lambda side: side.assertion(iat=None, exp=now() + 86_400)),
    "it was made an hour ago": asserted(lambda side: side.assertion(iat=now() - 3600)),
    "no jti": asserted(lambda side: side.assertion(jti=None)),
    "a jti used before": asserted(twice_used),
    "no aud": asserted(lambda side: side.assertion(aud=None)),
    "aud is another server": asserted(lambda side: side.assertion(aud="https://other.example")),
    "aud is several servers": asserted(lambda side: side.assertion(aud=[side.url, "https://other.example"])),
    "aud with a slash after it": asserted(lambda side: side.assertion(aud=f"{side.url}/")),
    "no iss": asserted(lambda side: side.assertion(iss=None)),
    "iss is another client": asserted(lambda side: side.assertion(iss=side.clients["other"].id)),
    "no sub": asserted(lambda side: side.assertion(sub=None)),
    "sub is another client": asserted(lambda side: side.assertion(sub=side.clients["other"].id)),
    "sub is unknown": asserted(lambda side: side.assertion(sub="nobody", iss="nobody")),
    "no client_assertion_type": asserted(Side.assertion, client_assertion_type=None),
    "another client_assertion_type": asserted(
        Side.assertion, client_assertion_type="urn:ietf:params:oauth:client-assertion-type:saml2-bearer"
    ),
    "sent twice": asserted(Side.assertion, client_assertion=lambda side: [side.assertion(), side.assertion()]),
    "another client_id beside it": asserted(Side.assertion, client_id=lambda side: side.clients["other"].id),
}

# --- codes


def used_code(side: Side) -> str:
    code = side.code()
    assert side.redeem("basic", code).status_code == 200
    return code


def bound_code(proof: Value) -> Bad:
    """A code that only the holder of a key can redeem."""
    bound = {"code": lambda side: side.code(dpop_jkt=thumbprint(PROOF_KEY))}
    return token({**CODE, **bound}, headers=(("DPoP", proof),))


CODES: dict[str, Bad] = {
    "no code": token(CODE, code=None),
    "an empty code": token(CODE, code=""),
    "an unknown code": token(CODE, code="unknown"),
    "code twice": token(CODE, code=lambda side: [side.code()] * 2),
    "a used code": token(CODE, code=used_code),
    "the code of another client": token(CODE, code=lambda side: side.code("other")),
    "the code of a public client": token(CODE, code=lambda side: side.code("public")),
    "a code by a public client that is not its own": token(CODE, named("public")),
    "a code that stops early": token(CODE, code=lambda side: side.code()[:-1]),
    "a code with one more character": token(CODE, code=lambda side: side.code() + "A"),
    "a pushed request as a code": token(CODE, code=lambda side: side.pushed().rpartition(":")[2]),
    "a refresh token as a code": token(CODE, code=REFRESH["refresh_token"]),
    "an access token as a code": token(CODE, code=Side.machine_token),
    "no redirect_uri": token(CODE, redirect_uri=None),
    "another redirect_uri": token(CODE, redirect_uri="https://other.example/callback"),
    "redirect_uri with a slash after it": token(CODE, redirect_uri="https://app.example/callback/"),
    "redirect_uri with a query": token(CODE, redirect_uri="https://app.example/callback?x=1"),
    "redirect_uri twice": token(CODE, redirect_uri=["https://app.example/callback"] * 2),
    "no code_verifier": token(CODE, code_verifier=None),
    "an empty code_verifier": token(CODE, code_verifier=""),
    "another code_verifier": token(CODE, code_verifier="w" * 43),
    "the challenge as code_verifier": token(CODE, code_verifier=challenge()),
    "a code_verifier too short": token(CODE, code_verifier="v" * 42),
    "a code_verifier too long": token(CODE, code_verifier="v" * 129),
    "a code_verifier with a space": token(CODE, code_verifier="v" * 42 + " "),
    "code_verifier twice": token(CODE, code_verifier=[VERIFIER, VERIFIER]),
    "an unknown resource": token(CODE, resource="https://other.example"),
    "a resource with a fragment": token(CODE, resource=lambda side: f"{side.api}#part"),
    "two resources": token(CODE, resource=lambda side: [side.api, "https://other.example"]),
    "a code bound to a key, without a proof": bound_code(None),
    "a code bound to a key, with another's proof": bound_code(lambda side: side.proof(key=OTHER_KEY)),
}

# --- refresh tokens


def refreshed(side: Side, role: str = "basic", proof: bool = False) -> list[str]:
    """A refresh token, what it was exchanged for, and so on: the last one is good."""
    found = [str(side.tokens(role, side.proof() if proof else "")["refresh_token"])]
    for _ in range(2):
        result = side.post("tokens", {"grant_type": "refresh_token", "refresh_token": found[-1]}, role)
        assert result.status_code == 200, result.text
        found.append(str(result.json()["refresh_token"]))
    return found


def after_reuse(side: Side) -> str:
    """Return the last refresh token of a family in which an older one was reused."""
    oldest, _, last = refreshed(side)
    side.post("tokens", {"grant_type": "refresh_token", "refresh_token": oldest}, "basic")
    return last


def after_code_reuse(side: Side) -> str:
    code = side.code()
    found = str(side.redeem("basic", code).json()["refresh_token"])
    side.redeem("basic", code)
    return found


def revoked(side: Side) -> str:
    found = str(side.tokens()["refresh_token"])
    assert side.post("revoke", {"token": found}, "basic").status_code == 200
    return found


def of_a_key(side: Side) -> str:
    return str(side.tokens("public", side.proof())["refresh_token"])


REFRESHED: dict[str, Bad] = {
    "none": token(REFRESH, refresh_token=None),
    "an empty one": token(REFRESH, refresh_token=""),
    "an unknown one": token(REFRESH, refresh_token="unknown"),
    "twice": token(REFRESH, refresh_token=lambda side: [side.tokens()["refresh_token"]] * 2),
    "of another client": token(REFRESH, refresh_token=lambda side: side.tokens("other")["refresh_token"]),
    "of a public client": token(REFRESH, refresh_token=lambda side: side.tokens("public")["refresh_token"]),
    "by a public client that is not its own": token(REFRESH, named("public")),
    "one that stops early": token(REFRESH, refresh_token=lambda side: side.tokens()["refresh_token"][:-1]),
    "one with one more character": token(REFRESH, refresh_token=lambda side: side.tokens()["refresh_token"] + "A"),
    "an access token instead": token(REFRESH, refresh_token=lambda side: side.tokens()["access_token"]),
    "a code instead": token(REFRESH, refresh_token=Side.code),
    "the one before the last": token(REFRESH, refresh_token=lambda side: refreshed(side)[-2]),
    "the one before the one before the last": token(REFRESH, refresh_token=lambda side: refreshed(side)[-3]),
    "the last, after an older one was shown": token(REFRESH, refresh_token=after_reuse),
    "of a code that was shown again": token(REFRESH, refresh_token=after_code_reuse),
    "a revoked one": token(REFRESH, refresh_token=revoked),
    "a wider scope": token(REFRESH, scope="openid things:read things:write"),
    "an unknown scope": token(REFRESH, scope="things:everything"),
    "a quote in the scope": token(REFRESH, scope='things:"read'),
    "an unknown resource": token(REFRESH, resource="https://other.example"),
    "of a key, without a proof": token(REFRESH, named("public"), refresh_token=of_a_key),
    "of a key, with another's proof": token(
        REFRESH, named("public"), refresh_token=of_a_key, headers=(("DPoP", lambda side: side.proof(key=OTHER_KEY)),)
    ),
}

# --- proofs


def proved(proof: Value, role: str = "basic") -> Bad:
    return token(MACHINE, basic(role), headers=(("DPoP", proof),))


def used_proof(side: Side) -> str:
    proof = side.proof()
    assert side.machine(proof=proof).status_code == 200
    return proof


def unsigned_proof(side: Side) -> str:
    head = {"alg": "none", "typ": "dpop+jwt", "jwk": PROOF_KEY.as_dict(private=False)}
    return f"{b64(json.dumps(head).encode())}.{side.proof().split('.')[1]}."


PROVED: dict[str, Bad] = {
    "none by a client that must": token(MACHINE, basic("bound")),
    "no JWT": proved("proof"),
    "empty": proved(""),
    "two at once": proved(lambda side: [side.proof(), side.proof()]),
    "the type of a plain JWT": proved(lambda side: side.proof(header={"typ": "JWT"})),
    "no type": proved(lambda side: side.proof(header={"typ": None})),
    "alg none": proved(unsigned_proof),
    "HS256": proved(lambda side: side.proof(key=SECRET_KEY, header={"jwk": SECRET_KEY.as_dict()})),
    "no key": proved(lambda side: side.proof(header={"jwk": None})),
    "a private key": proved(lambda side: side.proof(header={"jwk": PROOF_KEY.as_dict(private=True)})),
    "a key that did not sign": proved(lambda side: side.proof(header={"jwk": OTHER_KEY.as_dict(private=False)})),
    "a key of another curve": proved(lambda side: side.proof(key=P384, header={"alg": "ES384"})),
    "a key too small": proved(lambda side: side.proof(key=WEAK)),
    "an unknown crit": proved(lambda side: side.proof(header={"crit": ["x"], "x": 1})),
    "no jti": proved(lambda side: side.proof(jti=None)),
    "jti is a number": proved(lambda side: side.proof(jti=1)),
    "no htm": proved(lambda side: side.proof(htm=None)),
    "htm is GET": proved(lambda side: side.proof(htm="GET")),
    "htm in small letters": proved(lambda side: side.proof(htm="post")),
    "no htu": proved(lambda side: side.proof(htu=None)),
    "htu is another path": proved(lambda side: side.proof("userinfo")),
    "htu is another server": proved(lambda side: side.proof(htu="https://other.example/oauth/tokens")),
    "htu is a path alone": proved(lambda side: side.proof(htu="/oauth/tokens")),
    "no iat": proved(lambda side: side.proof(iat=None)),
    "iat is text": proved(lambda side: side.proof(iat=str(now()))),
    "iat an hour ago": proved(lambda side: side.proof(iat=now() - 3600)),
    "iat in an hour": proved(lambda side: side.proof(iat=now() + 3600)),
    "iat an hour ago, and no nonce": proved(lambda side: side.proof(iat=now() - 3600, nonce=None)),
    "no nonce": proved(lambda side: side.proof(nonce=None)),
    "another nonce": proved(lambda side: side.proof(nonce="a nonce of somebody's")),
    "nonce is a number": proved(lambda side: side.proof(nonce=5)),
    "shown before": proved(used_proof),
    "a client that must, with a proof that does not hold": proved(lambda side: side.proof(htm="GET"), "bound"),
}

TOKEN_REQUESTS: dict[str, Bad] = {
    f"{area}: {name}": bad
    for area, table in {
        "token": ASKED, "client": SHOWN, "assertion": ASSERTED, "code": CODES, "refresh token": REFRESHED,
        "proof": PROVED,
    }.items()
    for name, bad in table.items()
}  # fmt: skip
