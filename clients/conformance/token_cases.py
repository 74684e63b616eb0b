"""Requests with access tokens to accept and to refuse."""

import json
from typing import Any

from signing import KEYS, decode, encode, hashed, jwk_thumbprint, jwt, public, thumbprint

NOW = 1_800_000_000
ISSUER, AUDIENCE, ACCOUNT = "https://gatepost.example", "https://api.example.com", "acc_06gtq7q4h2v9c3b5n7m1k8j6g4"
URL = f"{AUDIENCE}/things?page=2"
KEY_SETS: dict[str, Any] = {
    "current": {"keys": [public("ES256"), public("RS256"), public("EdDSA")]},
    "rotated": {"keys": [public("next"), public("ES256")]},
    "for encryption": {"keys": [public("ES256") | {"use": "enc"}]},
    "for another algorithm": {"keys": [public("ES256") | {"alg": "RS256"}]},
    "with an empty kid": {"keys": [public("ES256") | {"kid": ""}]},
    "with members that are not keys": {"keys": [None, "x", public("ES256")]},
    "not a key set": {"status": "maintenance"},
    "null": None,
    "keys are null": {"keys": None},
    "keys are an object": {"keys": {}},
    "keys in upper case": {"KEYS": [public("ES256")]},
}
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "sub": "cli_06gtq7q4h2v9c3b5n7m1k8j6g4",
    "aud": AUDIENCE,
    "exp": NOW + 3600,
    "iat": NOW,
    "jti": "tok_06gtq7q4h2v9c3b5n7m1k8j6g4",
    "client_id": "cli_06gtq7q4h2v9c3b5n7m1k8j6g4",
    "scope": "things:read things:write",
    "account": ACCOUNT,
    "grant": "grt_06gtq7q4h2v9c3b5n7m1k8j6g4",
}
PROOF_ALGORITHMS = "ES256 RS256 PS256 EdDSA Ed25519"
_HUGE = {"1e400": "1e400", "-1e400": "-1e400", "10^400 in digits": "1" + "0" * 400}
# In the order in which they are checked. `None` as the error: the challenge has none.
CHECKS: dict[str, tuple[int, str | None, str]] = {
    "authorization": (401, None, "The request has no access token."),
    "request": (400, "invalid_request", "Send one Authorization header with the scheme Bearer or DPoP and a token."),
    "size": (401, "invalid_token", "The token is larger than 16384 bytes."),
    "format": (401, "invalid_token", "The token is not a signed JWT."),
    "typ": (401, "invalid_token", "The token is not an access token (typ at+jwt)."),
    "alg": (401, "invalid_token", "The algorithm of the token is not allowed."),
    "keys": (503, None, "The key set of the issuer is not available."),
    "kid": (401, "invalid_token", "The key of the token is not in the key set of the issuer."),
    "signature": (401, "invalid_token", "The signature of the token is not valid."),
    "iss": (401, "invalid_token", "The token is from another issuer."),
    "aud": (401, "invalid_token", "The token is for another audience."),
    "exp": (401, "invalid_token", "The token has expired."),
    "nbf": (401, "invalid_token", "The token is not valid yet."),
    "account": (401, "invalid_token", "The token is of another account."),
    "dpop_scheme": (401, "invalid_token", "A token that is bound to a key needs the scheme DPoP, any other Bearer."),
    "dpop_proof": (401, "invalid_dpop_proof", "Send one DPoP proof that is signed with the public key in its header."),
    "dpop_key": (401, "invalid_dpop_proof", "The token is bound to another key than that of the DPoP proof."),
    "dpop_htm": (401, "invalid_dpop_proof", "The DPoP proof is for another method."),
    "dpop_htu": (401, "invalid_dpop_proof", "The DPoP proof is for another URL."),
    "dpop_ath": (401, "invalid_dpop_proof", "The DPoP proof is for another token."),
    "dpop_iat": (401, "invalid_dpop_proof", "The DPoP proof is too old or too new."),
    "dpop_jti": (
        401,
        "invalid_dpop_proof",
        "The DPoP proof has no jti or was used before, or too many proofs were used.",
    ),
    "scope": (403, "insufficient_scope", "The token does not have the required scope."),
}


def token(key: str = "ES256", header: dict[str, Any] | None = None, payload: Any = None, **claims: Any) -> str:
    """An access token. A claim or a header member that is None is left out."""
    merged = {"typ": "at+jwt", "alg": KEYS[key]["alg"], "kid": KEYS[key]["kid"]} | (header or {})
    return jwt(_without_none(merged), payload if payload is not None else _without_none(CLAIMS | claims), key)


def bound(key: str = "proof") -> str:
    """An access token that is bound to a key."""
    return token(cnf={"jkt": thumbprint(key)})


def proof(
    access: str, key: str = "proof", header: dict[str, Any] | None = None, payload: Any = None, **claims: Any
) -> str:
    """A DPoP proof for a request with this token."""
    algorithm = {"EC": "ES256", "OKP": "EdDSA", "RSA": "RS256"}[KEYS[key]["kty"]]
    merged = {"typ": "dpop+jwt", "alg": algorithm, "jwk": public(key)} | (header or {})
    content = {"htm": "GET", "htu": f"{AUDIENCE}/things", "iat": NOW, "jti": "proof-1", "ath": hashed(access)} | claims
    return jwt(_without_none(merged), payload if payload is not None else _without_none(content), key)


def _without_none(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def step(access: str | None, expect: str = "", **changes: Any) -> dict[str, Any]:
    """One request: the token is accepted, or the check `expect` fails."""
    scopes = changes.pop("scopes", [])
    proofs = changes.pop("proofs", [])
    scheme = changes.pop("scheme", "DPoP" if proofs else "Bearer")
    authorization = changes.pop("authorization", [f"{scheme} {access}"])
    request = {"method": "GET", "url": URL, "authorization": authorization, "dpop": proofs}
    request |= {name: changes.pop(name) for name in ("method", "url") if name in changes}
    challenge = "DPoP" if scheme.lower() == "dpop" or expect.startswith("dpop_") else "Bearer"
    return {
        "now": NOW,
        "request": request,
        "scopes": scopes,
        "expect": _refusal(expect, challenge, scopes) if expect else {"claims": _claims(access or "")},
    } | changes


def _claims(access: str) -> Any:
    return json.loads(decode(access.split(".")[1]))


def _refusal(check: str, scheme: str, scopes: list[str]) -> dict[str, Any]:
    status, error, description = CHECKS[check]
    attributes = {} if error is None else {"error": error, "error_description": description}
    attributes |= {"scope": " ".join(scopes)} if check == "scope" else {}
    attributes |= {"algs": PROOF_ALGORITHMS} if scheme == "DPoP" else {}
    challenge = f"{scheme} " + ", ".join(f'{name}="{value}"' for name, value in attributes.items())
    refusal = {"check": check, "status": status, "message": description}
    return refusal | {"www_authenticate": None if check == "keys" else challenge.strip()}


def case(name: str, *steps: dict[str, Any], key_sets: list[str | None] | None = None, **changes: Any) -> dict[str, Any]:
    """A case: a new verifier, and requests to it in this order."""
    fetches = changes.pop("fetches", 1)
    options = {"issuer": ISSUER, "audience": AUDIENCE} | changes
    key_sets = ["current"] if key_sets is None else key_sets
    return {"name": name, "options": options, "key_sets": key_sets, "steps": list(steps), "fetches": fetches}


def single(name: str, access: str | None, expect: str = "", **changes: Any) -> dict[str, Any]:
    """A case of one request."""
    before_keys = {"authorization", "request", "size", "format", "typ", "alg"}
    names = ("key_sets", "issuer", "account", "algorithms")
    outer = {each: changes.pop(each) for each in names if each in changes}
    fetches = changes.pop("fetches", 0 if expect in before_keys else 1)
    return case(name, step(access, expect, **changes), fetches=fetches, **outer)


def cases() -> list[dict[str, Any]]:
    """All cases."""
    return [
        *_request_cases(),
        *_header_cases(),
        *_notation_cases(),
        *_claim_cases(),
        *_proof_cases(),
        *_key_set_cases(),
    ]


def _request_cases() -> list[dict[str, Any]]:
    good = token()
    return [
        single("no Authorization header", None, "authorization", authorization=[]),
        single("another authentication scheme", None, "authorization", authorization=["Basic dXNlcjpwYXNz"]),
        single("two Authorization headers", None, "request", authorization=[f"Bearer {good}"] * 2),
        single("a scheme without a token", None, "request", authorization=["Bearer"]),
        single("a token with a space", None, "request", authorization=[f"Bearer {good} x"]),
        single("a scheme in lower case", good, scheme="bearer"),
        single("a token of 16384 bytes that is no JWT", "x" * 16384, "format"),
        single("a token of 16385 bytes", "x" * 16385, "size"),
    ]


def _header_cases() -> list[dict[str, Any]]:
    good = token()
    start, signature = good.rsplit(".", 1)
    changed = ("A" if signature[0] != "A" else "B") + signature[1:]
    return [
        single("signed with ES256", good),
        single("signed with RS256", token("RS256")),
        single("signed with EdDSA", token("EdDSA")),
        single("typ application/at+jwt", token(header={"typ": "application/at+jwt"})),
        single("two parts", start, "format"),
        single("four parts", f"{good}.x", "format"),
        single("a header that is not JSON", f"eA.{good.split('.', 1)[1]}", "format"),
        single("a header that is a list", f"W10.{good.split('.', 1)[1]}", "format"),
        single("a critical header member", token(header={"crit": ["exp"]}), "format"),
        single("claims that are a list", token(payload=[1]), "format", fetches=1),
        single("claims that are not JSON", token(payload=b"x"), "format", fetches=1),
        single("an ID token: typ JWT", token(header={"typ": "JWT"}), "typ"),
        single("no typ", token(header={"typ": None}), "typ"),
        single("alg none", token(header={"alg": "none"}), "alg"),
        single("alg HS256 with the public key as its secret", token(header={"alg": "HS256"}), "alg"),
        single("an alg that the verifier does not allow", token("RS256"), "alg", algorithms=["ES256"]),
        single("alg PS256, which signs proofs but no tokens", token("RS256", {"alg": "PS256"}), "alg"),
        single("an unknown kid", token("next"), "kid"),
        single("no kid", token(header={"kid": None}), "kid"),
        single("a kid that is a number", token(header={"kid": 1}), "kid"),
        single("a kid whose key is for encryption", good, "kid", key_sets=["for encryption"]),
        single("signed by another key with a known kid", token("stranger"), "signature"),
        single("an alg that the key is not for", good, "signature", key_sets=["for another algorithm"]),
        single("a kid of a key of another type", token(header={"kid": "rs-1"}), "signature"),
        single("a signature that was changed", f"{start}.{changed}", "signature"),
        single("a signature that is cut off", f"{start}.{encode(decode(signature)[:-3])}", "signature"),
        single("no signature", f"{start}.", "signature"),
        single("claims that were changed", _forged(good), "signature"),
        single("a wrong signature before a wrong issuer", token("stranger", iss="https://x.example"), "signature"),
    ]


_BOM = b"\xef\xbb\xbf"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _notation_cases() -> list[dict[str, Any]]:
    """The same header, claims and signature in other notations, all of them correctly signed."""
    header, claims = (
        json.dumps(members, separators=(",", ":")).encode()
        for members in ({"typ": "at+jwt", "alg": "ES256", "kid": KEYS["ES256"]["kid"]}, CLAIMS)
    )

    def with_header(name: str, raw: bytes, expect: str = "format", **changes: Any) -> dict[str, Any]:
        return single(f"a header {name}", jwt(raw, claims, "ES256"), expect, **changes)

    def with_claims(name: str, raw: bytes, expect: str = "format") -> dict[str, Any]:
        return single(f"claims {name}", jwt(header, raw, "ES256"), expect, fetches=1)

    def with_kid(name: str, kid: bytes) -> dict[str, Any]:
        raw = header[:-1].replace(b',"kid":"es-1"', b"") + kid + b"}"
        return with_header(f"with a kid that is {name}, and a key with an empty one", raw, "kid",
                           key_sets=["with an empty kid"])  # fmt: skip

    good = jwt(header, claims, "ES256")
    start, signature = good.rsplit(".", 1)
    return [
        with_header("with spaces", header.replace(b":", b" : ").replace(b"at+", b"\\u0061t+"), ""),
        with_header("with a repeated member", header[:-1] + b',"kid":"es-1"}'),
        with_header("with a member that is repeated in another notation", header[:-1] + b',"\\u006bid" :"es-1"}'),
        with_header("with a member that is repeated in an object", header[:-1] + b',"x":[{"y":{},"y":1}]}'),
        with_header("with the same member in several objects", header[:-1] + b',"x":[{"y":1},{"y":{"y":2}}]}', ""),
        with_header("with text that looks like a repeated member", header[:-1] + b',"x":"\\"kid\\":{\\"kid\\":"}', ""),
        with_header("with b64", header[:-1] + b',"b64":false}'),
        with_header("with b64 that is true", header[:-1] + b',"b64":true}'),
        with_header("after a byte order mark", _BOM + header),
        with_header("that is not UTF-8", header[:-1] + b',"x":"\xff"}'),
        with_header("in UTF-16", header.decode().encode("utf-16")),
        with_kid("absent", b""),
        with_kid("empty", b',"kid":""'),
        with_kid("null", b',"kid":null'),
        with_kid("a number", b',"kid":1'),
        with_claims("with a repeated member", claims[:-1] + b',"scope":"admin"}'),
        with_claims("with a member that is repeated in an object", claims[:-1] + b',"x":{"y":1,"y":1}}'),
        with_claims("with members whose names differ in case", claims[:-1] + b',"Scope":"admin"}', ""),
        with_claims("with the member names of every object", claims[:-1] + b',"constructor":1,"__proto__":1}', ""),
        with_claims("after a byte order mark", _BOM + claims),
        with_claims("that are not UTF-8", claims[:-1] + b',"x":"\xff"}'),
        with_claims("with an encoded surrogate", claims[:-1] + b',"x":"\xed\xa0\x80"}'),
        with_claims("in UTF-16", claims.decode().encode("utf-16")),
        with_claims("followed by text", claims + b"x"),
        single("a signature with padding", None, "format", authorization=[f"Bearer {good}=="]),
        single("a signature whose last character has bits left over", f"{start}.{_with_bits_left_over(signature)}",
               "format"),
        single("claims whose last character has bits left over", ".".join(
               _with_bits_left_over(part) if number == 1 else part
               for number, part in enumerate(jwt(header, claims + b" " * (-len(claims) % 3 + 1), "ES256").split("."))),
               "format"),
    ]  # fmt: skip


def _with_bits_left_over(text: str) -> str:
    """The same bytes in base64url that is not canonical: RFC 4648, section 3.5."""
    changed = text[:-1] + _ALPHABET[_ALPHABET.index(text[-1]) + 1]
    if decode(changed) != decode(text):
        raise ValueError("the text has no bits left over")
    return changed


def _forged(good: str) -> str:
    header, _, signature = good.split(".")
    return f"{header}.{token(account='acc_other').split('.')[1]}.{signature}"


def _claim_cases() -> list[dict[str, Any]]:
    good = token()
    return [
        single("another issuer", token(iss="https://other.example"), "iss"),
        single("an issuer with a slash", token(iss=f"{ISSUER}/"), "iss"),
        single("no issuer", token(iss=None), "iss"),
        single("an option issuer with a slash", good, issuer=f"{ISSUER}/"),
        single("an option issuer and a token with a slash", token(iss=f"{ISSUER}/"), "iss", issuer=f"{ISSUER}/"),
        single("several audiences", token(aud=[ISSUER, AUDIENCE])),
        single("another audience", token(aud="https://other.example"), "aud"),
        single("several other audiences", token(aud=[ISSUER, f"{AUDIENCE}/"]), "aud"),
        single("no audience", token(aud=None), "aud"),
        single("a wrong audience before an expired token", token(aud="x:y", exp=NOW - 60), "aud"),
        single("expired 9 seconds ago", token(exp=NOW - 9)),
        single("expired 10 seconds ago", token(exp=NOW - 10), "exp"),
        single("an expiry that is a fraction", token(exp=NOW - 9.5)),
        single("no expiry", token(exp=None), "exp"),
        single("an expiry that is text", token(exp=str(NOW + 3600)), "exp"),
        single("an expiry that is true", token(exp=True), "exp"),
        single("an expiry that is negative", token(exp=-1), "exp"),
        single("an expiry in the year 6325", token(exp=2**37 - 1)),
        single("an expiry after the year 6325", token(exp=2**37), "exp"),
        *[
            single(f"an expiry of {name}", token(payload=_with_number("exp", number)), "exp")
            for name, number in _HUGE.items()
        ],
        single("an expiry that is NaN", token(payload=_with_number("exp", "NaN")), "format", fetches=1),
        single("an expiry that is Infinity", token(payload=_with_number("exp", "Infinity")), "format", fetches=1),
        single("valid in 10 seconds", token(nbf=NOW + 10)),
        single("valid in 11 seconds", token(nbf=NOW + 11), "nbf"),
        single("a time of validity that is text", token(nbf="now"), "nbf"),
        single("a time of validity that is true", token(nbf=True), "nbf"),
        single("a time of validity that is null", token(payload=CLAIMS | {"nbf": None}), "nbf"),
        single("a time of validity that is negative", token(nbf=-1), "nbf"),
        single("a time of validity of -1e400", token(payload=_with_number("nbf", "-1e400")), "nbf"),
        single("no subject", token(sub=None), "format", fetches=1),
        single("a subject that is a number", token(sub=1), "format", fetches=1),
        single("a subject that is null", token(payload=CLAIMS | {"sub": None}), "format", fetches=1),
        single("no client", token(client_id=None), "format", fetches=1),
        single("a client that is a list", token(client_id=["x"]), "format", fetches=1),
        single("no subject before a wrong issuer", token(sub=None, iss="https://x.example"), "format", fetches=1),
        single("the account that the verifier names", good, account=ACCOUNT),
        single("another account", good, "account", account="acc_other"),
        single("no account", token(account=None), "account", account=ACCOUNT),
        single("the required scopes", good, scopes=["things:write", "things:read"]),
        single("a scope that is missing", good, "scope", scopes=["things:read", "things:delete"]),
        single("a scope that another one begins with", good, "scope", scopes=["things"]),
        single("no scope", token(scope=None), "scope", scopes=["things:read"]),
        single("a wrong account before a missing scope", good, "account", account="acc_other", scopes=["x"]),
    ]


def _with_number(name: str, number: str) -> bytes:
    """The claims with a number in this notation, which json.dumps would not write."""
    return json.dumps(CLAIMS | {name: "$number"}, separators=(",", ":")).replace('"$number"', number).encode()


def _proof_cases() -> list[dict[str, Any]]:
    good, plain, other = bound(), token(), bound("proof-ed")
    off_curve = public("proof") | {"y": public("proof")["x"]}
    objects: dict[str, Any] = {"kty": "RSA", "n": {"toString": 1}, "e": "AQAB"}
    nulled = token(payload=CLAIMS | {"cnf": None})
    private = {"jwk": {name: value for name, value in KEYS["proof"].items() if name in {"kty", "crv", "x", "y", "d"}}}

    def made(name: str, expect: str = "", *, url: str = URL, header: Any = None, **claims: Any) -> dict[str, Any]:
        return single(f"DPoP: {name}", good, expect, proofs=[proof(good, header=header, **claims)], url=url)

    def keyed(name: str, key: str, **header: Any) -> dict[str, Any]:
        access = bound(key)
        return single(f"DPoP: signed with {name}", access, proofs=[proof(access, key, header)])

    def timed(name: str, number: str, expect: str = "dpop_iat") -> dict[str, Any]:
        claims = {"htm": "GET", "htu": f"{AUDIENCE}/things", "iat": "$number", "jti": "proof-1", "ath": hashed(good)}
        payload = json.dumps(claims, separators=(",", ":")).replace('"$number"', number).encode()
        sent = jwt({"typ": "dpop+jwt", "alg": "ES256", "jwk": public("proof")}, payload, "proof")
        return single(f"DPoP: {name}", good, expect, proofs=[sent])

    return [
        made("a bound token with its proof"),
        single("DPoP: the scheme in lower case", good, scheme="dpop", proofs=[proof(good)]),
        keyed("RS256", "proof-rsa"),
        keyed("PS256", "proof-rsa", alg="PS256"),
        keyed("EdDSA", "proof-ed"),
        keyed("Ed25519", "proof-ed", alg="Ed25519"),
        single("DPoP: a bound token sent as Bearer", good, "dpop_scheme"),
        single("DPoP: a bound token sent as Bearer with a proof", good, "dpop_scheme", scheme="Bearer",
               proofs=[proof(good)]),
        single("DPoP: an unbound token", plain, "dpop_scheme", proofs=[proof(plain)]),
        single("DPoP: a token that is bound in another way", token(cnf={"x5t#S256": "x"}), "dpop_key",
               proofs=[proof(token(cnf={"x5t#S256": "x"}))]),
        single("DPoP: a binding that is null, sent as Bearer", nulled, "dpop_scheme"),
        single("DPoP: a binding that is null", nulled, "dpop_key", proofs=[proof(nulled)]),
        single("DPoP: no proof", good, "dpop_proof", scheme="DPoP"),
        single("DPoP: two proofs", good, "dpop_proof", proofs=[proof(good), proof(good, jti="proof-2")]),
        single("DPoP: a proof that is no JWT", good, "dpop_proof", proofs=["x"]),
        single("DPoP: a proof of more than 16384 bytes", good, "dpop_proof",
               proofs=[proof(good, padding="x" * 16384)]),
        made("typ JWT", "dpop_proof", header={"typ": "JWT"}),
        made("alg none", "dpop_proof", header={"alg": "none"}),
        made("alg HS256", "dpop_proof", header={"alg": "HS256"}),
        made("no key", "dpop_proof", header={"jwk": None}),
        made("a key that is text", "dpop_proof", header={"jwk": "x"}),
        made("a private key", "dpop_proof", header=private),
        made("a key that is a list", "dpop_proof", header={"jwk": [public("proof")]}),
        made("claims that are a list", "dpop_proof", payload=[1]),
        made("claims with a repeated member", "dpop_proof", payload=b'{"htm":"GET","htm":"GET"}'),
        made("claims that are not UTF-8", "dpop_proof", payload=b'{"htm":"\xff"}'),
        made("claims after a byte order mark", "dpop_proof", payload=_BOM + b"{}"),
        made("a header with b64", "dpop_proof", header={"b64": True}),
        single("DPoP: a key that did not sign", bound("proof-ed"), "dpop_proof",
               proofs=[proof(bound("proof-ed"), "webhook", {"jwk": public("proof-ed")})]),
        single("DPoP: a key that is of another type than the algorithm", other, "dpop_proof",
               proofs=[proof(other, header={"jwk": public("proof-ed")})]),
        single("DPoP: a point that is not on the curve", token(cnf={"jkt": jwk_thumbprint(off_curve)}), "dpop_proof",
               proofs=[proof(token(cnf={"jkt": jwk_thumbprint(off_curve)}), header={"jwk": off_curve})]),
        single("DPoP: an RSA key whose modulus is an object", token(cnf={"jkt": jwk_thumbprint(objects)}), "dpop_proof",
               proofs=[proof(token(cnf={"jkt": jwk_thumbprint(objects)}), header={"alg": "RS256", "jwk": objects},
                             key="proof-rsa")]),
        made("the key is compared before the signature is verified", "dpop_key", header={"jwk": public("next")}),
        made("a key without a coordinate", "dpop_key", header={"jwk": _without_none(public("proof") | {"y": None})}),
        made("a coordinate that is a number", "dpop_key", header={"jwk": public("proof") | {"y": 1}}),
        *[
            made(f"a key of the type {kind}", "dpop_key", header={"jwk": public("proof") | {"kty": kind}})
            for kind in ("oct", "constructor", None, 1, ["EC"], {})
        ],
        made("a critical header member", "dpop_proof", header={"crit": ["jti"]}),
        single("DPoP: an RSA key of 1024 bits", bound("proof-small-rsa"), "dpop_proof",
               proofs=[proof(bound("proof-small-rsa"), "proof-small-rsa")]),
        *[
            single(f"DPoP: an RSA key {why}", bound(key), "dpop_proof",
                   proofs=[proof(bound(key), key, {"alg": "PS256"})])
            for key, why in {
                "proof-large-rsa": "of 8200 bits",
                "proof-large-exponent": "with an exponent of more than 32 bits",
            }.items()
        ],
        single("DPoP: a key that the token is not bound to", other, "dpop_key", proofs=[proof(other)]),
        made("another method", "dpop_htm", htm="POST"),
        made("a method in lower case", "dpop_htm", htm="get"),
        made("no method", "dpop_htm", htm=None),
        made("another path", "dpop_htu", htu=f"{AUDIENCE}/other"),
        made("another host", "dpop_htu", htu="https://other.example/things"),
        made("another scheme", "dpop_htu", htu="http://api.example.com/things"),
        made("another port", "dpop_htu", htu="https://api.example.com:8443/things"),
        made("a path with a trailing slash", "dpop_htu", htu=f"{AUDIENCE}/things/"),
        made("a URL that is relative", "dpop_htu", htu="/things"),
        made("no URL", "dpop_htu", htu=None),
        made("a URL with its query and a fragment", htu=f"{AUDIENCE}/things?page=2#top"),
        made("a URL in another notation", htu="HTTPS://API.Example.com:443/a/../%74hings"),
        made("an escaped slash, which is not a separator", "dpop_htu", url=f"{AUDIENCE}/a/b", htu=f"{AUDIENCE}/a%2Fb"),
        made("an escape in lower case", url=f"{AUDIENCE}/a%2Fb", htu=f"{AUDIENCE}/a%2fb"),
        made("a URL without a path", url=f"{AUDIENCE}/", htu=AUDIENCE),
        made("another token", "dpop_ath", ath=hashed(other)),
        made("no hash of the token", "dpop_ath", ath=None),
        made("60 seconds old", iat=NOW - 60),
        made("61 seconds old", "dpop_iat", iat=NOW - 61),
        made("60 seconds ahead", iat=NOW + 60),
        made("61 seconds ahead", "dpop_iat", iat=NOW + 61),
        made("no time", "dpop_iat", iat=None),
        made("a time that is text", "dpop_iat", iat="now"),
        made("a time that is true", "dpop_iat", iat=True),
        made("a time that is a fraction", iat=NOW - 59.5),
        made("a time that is a list", "dpop_iat", iat=[NOW]),
        *[timed(f"a time of {name}", number) for name, number in _HUGE.items()],
        timed("a time that is null", "null"),
        timed("a time that is NaN", "NaN", "dpop_proof"),
        made("no jti", "dpop_jti", jti=None),
        made("an empty jti", "dpop_jti", jti=""),
        made("a jti of 256 characters", jti="x" * 256),
        made("a jti of 257 characters", "dpop_jti", jti="x" * 257),
        case("DPoP: a proof that was used before",
             step(good, proofs=[proof(good)]),
             step(good, "dpop_jti", proofs=[proof(good)], now=NOW + 60),
             step(good, proofs=[proof(good, jti="proof-2")]),
             step(good, "dpop_jti", proofs=[proof(good, iat=NOW + 30)], now=NOW + 60)),
        case("DPoP: a proof from the future that was used before",
             step(good, proofs=[proof(good, iat=NOW + 60)]),
             step(good, "dpop_jti", proofs=[proof(good, iat=NOW + 60)], now=NOW + 120)),
        case("DPoP: a jti of which the proof has expired",
             step(good, proofs=[proof(good)]),
             step(good, proofs=[proof(good, iat=NOW + 100)], now=NOW + 100)),
        case("DPoP: the same jti of two keys",
             step(good, proofs=[proof(good)]), step(other, proofs=[proof(other, "proof-ed")])),
        single("DPoP: a scope that is missing", good, "scope", proofs=[proof(good)], scopes=["x"]),
    ]  # fmt: skip


def _key_set_cases() -> list[dict[str, Any]]:
    good, later = token(), token("next")

    def at(seconds: int, access: str = good, expect: str = "", **changes: Any) -> dict[str, Any]:
        return step(access, expect, now=NOW + seconds, **changes)

    both: list[str | None] = ["current", "rotated"]
    return [
        case("one fetch for requests at the same time", at(0, times=5)),
        case("cached for 15 minutes", at(0), at(900), fetches=1),
        case("fetched again after 15 minutes", at(0), at(901), at(902), fetches=2),
        case("an unknown kid: fetched again after a minute", at(0), at(60, later), key_sets=both, fetches=2),
        case("an unknown kid: not fetched again within a minute", at(0), at(59, later, "kid"), at(60, later),
             key_sets=both, fetches=2),
        case("an unknown kid: at most once a minute", at(0), at(60, later, "kid"), at(61, later, "kid"),
             at(119, later, "kid", times=3), at(120, later, "kid"), fetches=3),
        case("no key set", at(0, good, "keys"), key_sets=[None]),
        case("a key set that comes later", at(0, good, "keys"), at(1), key_sets=[None, "current"], fetches=2),
        case("a known key while the key set cannot be fetched again", at(0), at(901), at(902), at(961),
             key_sets=["current", None], fetches=3),
        case("an unknown key while the key set cannot be fetched again", at(0), at(60, later, "kid"), at(61),
             key_sets=["current", None], fetches=2),
        case("a key set with members that are not keys", at(0), key_sets=["with members that are not keys"]),
        *[
            made
            for name in ("not a key set", "null", "keys are null", "keys are an object", "keys in upper case")
            for made in (
                case(f"no key set, but JSON: {name}", at(0, good, "keys"), key_sets=[name]),
                case(f"a known key while the key set is JSON of another kind: {name}", at(0), at(901), at(902),
                     at(961), key_sets=["current", name], fetches=3),
            )
        ],
    ]  # fmt: skip
