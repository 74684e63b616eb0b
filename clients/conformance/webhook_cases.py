"""Webhooks to accept and to refuse."""

import hmac
import json
from base64 import b64decode, b64encode
from typing import Any

from signing import KEYS, decode, ed25519_key

NOW = 1_800_000_000
SECRET = "whsec_" + b64encode(b"a webhook secret of 32 bytes ...").decode()
OTHER = "whsec_" + b64encode(b"another secret").decode()
PUBLIC = "whpk_" + b64encode(decode(KEYS["webhook"]["x"])).decode()
EVENT = {
    "id": "evt_06gtq7q4h2v9c3b5n7m1k8j6g4",
    "type": "invoice.paid",
    "timestamp": "2027-01-15T08:00:00.000Z",
    "account": "acc_06gtq7q4h2v9c3b5n7m1k8j6g4",
    "data": {"invoice": 17, "words": "Grüße, 世界 🎉"},
}
BODY = json.dumps(EVENT, ensure_ascii=False)
ID = EVENT["id"]


def v1(secret: str = SECRET, body: str | bytes = BODY, timestamp: object = NOW, event_id: object = ID) -> str:
    """A signature with a shared secret."""
    key = _key(secret)
    raw = body if isinstance(body, bytes) else body.encode()
    digest = hmac.digest(key, f"{event_id}.{timestamp}.".encode() + raw, "sha256")
    return "v1," + b64encode(digest).decode()


def v1a(body: str = BODY) -> str:
    """A signature with the Ed25519 key."""
    return "v1a," + b64encode(ed25519_key("webhook").sign(f"{ID}.{NOW}.{body}".encode())).decode()


def _key(secret: str) -> bytes:
    text = secret.removeprefix("whsec_")
    return b64decode(text + "=" * (-len(text) % 4))


def case(name: str, expect: str = "", **changes: Any) -> dict[str, Any]:
    """A case that is accepted, or in which the check `expect` fails."""
    headers = {"webhook-id": ID, "webhook-timestamp": str(NOW), "webhook-signature": v1()}
    headers |= changes.pop("headers", {})
    made: dict[str, Any] = {"name": name, "secrets": [SECRET], "now": NOW, "body": BODY} | changes
    made["headers"] = {header: value for header, value in headers.items() if value is not None}
    made["expect"] = {"check": expect} if expect else {"event": json.loads(made["body"])}
    return made


def sign(*signatures: str) -> dict[str, Any]:
    """Headers with these signatures."""
    return {"headers": {"webhook-signature": " ".join(signatures)}}


def raw(name: str, body: bytes) -> dict[str, Any]:
    """A case with a body that is signed but not JSON in UTF-8."""
    made = case(name, "body", **sign(v1(body=body)))
    del made["body"]
    return made | {"body_base64": b64encode(body).decode()}


def repeated(name: str, header: str, *values: str) -> list[dict[str, Any]]:
    """A header that is sent twice, and one with both values, as many frameworks join them."""
    return [
        case(f"{name}, in two headers", "headers", headers={header: list(values)}),
        case(f"{name}, in one header", "headers", headers={header: ", ".join(values)}),
    ]


def at(timestamp: str) -> dict[str, Any]:
    """Headers with this timestamp, correctly signed."""
    return {"headers": {"webhook-timestamp": timestamp, "webhook-signature": v1(timestamp=timestamp)}}


def cases() -> list[dict[str, Any]]:
    """All cases."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    mixed = {"webhook-id": None, "webhook-signature": None, "Webhook-Id": ID, "WEBHOOK-SIGNATURE": v1()}
    return [
        case("signed with the secret"),
        case("header names in any case", headers=mixed),
        case("a secret without padding", secrets=[SECRET.rstrip("=")]),
        case("the second of two secrets", secrets=[OTHER, SECRET]),
        case("the second of two signatures", **sign(v1(OTHER), v1())),
        case("an unknown version before a known one", **sign("v9,abc", v1())),
        case("16 signatures, the last of which matches", **sign(*[v1(OTHER)] * 15, v1())),
        case("16 signatures, the last of which matches a public key", secrets=[PUBLIC],
             **sign(*[v1a("{}")] * 15, v1a())),
        case("17 signatures, the first of which matches", "signature", **sign(v1(), *[v1(OTHER)] * 16)),
        case("17 signatures, 16 of them of an unknown version", "signature", **sign(*["v9,abc"] * 16, v1())),
        case("signed with Ed25519", secrets=[PUBLIC], **sign(v1a())),
        case("Ed25519 beside a shared secret", secrets=[SECRET, PUBLIC], **sign(v1(OTHER), v1a())),
        case("a body that is a JSON number", body="17", **sign(v1(body="17"))),
        case("exactly 5 minutes old", now=NOW + 300),
        case("5 minutes and 1 second old", "timestamp", now=NOW + 301),
        case("exactly 5 minutes ahead", now=NOW - 300),
        case("5 minutes and 1 second ahead", "timestamp", now=NOW - 301),
        *[case(f"without {name}", "headers", headers={name: None}) for name in names],
        *[case(f"an empty {name}", "headers", headers={name: ""}) for name in names],
        case("a dot in the id", "id", headers={"webhook-id": "a.b", "webhook-signature": v1(event_id="a.b")}),
        *[
            case(f"a timestamp that is {why}", "timestamp", **at(text))
            for why, text in {
                "a decimal": f"{NOW}.0",
                "negative": f"-{NOW}",
                "signed": f"+{NOW}",
                "hexadecimal": hex(NOW),
                "followed by text": f"{NOW}x",
                "longer than 12 digits": f"0000{NOW}",
                "a word": "now",
            }.items()
        ],
        case("another secret", "signature", secrets=[OTHER]),
        case("another body", "signature", body=BODY.replace("17", "18")),
        case("another id", "signature", headers={"webhook-id": "evt_other"}),
        case("another timestamp", "signature", headers={"webhook-timestamp": str(NOW + 1)}),
        case("a signature without its version", "signature", **sign(v1().removeprefix("v1,"))),
        case("a signature that is cut off", "signature", **sign(v1()[:-8])),
        case("a signature without padding", "signature", **sign(v1().rstrip("="))),
        case("a signature of another version", "signature", **sign(v1().replace("v1,", "v1a,"))),
        case("a signature that is not base64", "signature", secrets=[PUBLIC], **sign("v1a,~~~")),
        case("an Ed25519 signature that is too short", "signature", secrets=[PUBLIC], **sign("v1a,c2hvcnQ=")),
        case("an Ed25519 signature that is too long", "signature", secrets=[PUBLIC], **sign(f"{v1a()[:-2]}AAAA")),
        case("an Ed25519 signature with too much padding", "signature", secrets=[PUBLIC], **sign(f"{v1a()}=")),
        case("an Ed25519 signature of another body", "signature", secrets=[PUBLIC], **sign(v1a("{}"))),
        case("HMAC with the public key as its secret", "signature", secrets=[PUBLIC],
             **sign(v1("whsec_" + PUBLIC.removeprefix("whpk_")))),
        case("signed but not JSON", "body", body="paid", **sign(v1(body="paid"))),
        case("signed but empty", "body", body="", **sign(v1(body=""))),
        *[
            raw(f"signed but {name}", body)
            for name, body in {
                "with NaN": b'{"data":NaN}',
                "with Infinity": b"[Infinity]",
                "with -Infinity": b"-Infinity",
                "not UTF-8": b'{"data":"\xff"}',
                "with an encoded surrogate": b'{"data":"\xed\xa0\x80"}',
                "after a byte order mark": b"\xef\xbb\xbf{}",
                "in UTF-16": "{}".encode("utf-16"),
                "in UTF-16 without a byte order mark": "{}".encode("utf-16-le"),
                "in UTF-32": "{}".encode("utf-32-be"),
                "after a space that JSON does not know": "\u00a0{}".encode(),
                "followed by a null character": b"{}\0",
            }.items()
        ],
        case("a body with spaces around it", body=" {}\r\n", **sign(v1(body=" {}\r\n"))),
        *repeated("the same webhook-id", "webhook-id", str(ID), str(ID)),
        *repeated("another webhook-id after the signed one", "webhook-id", str(ID), "evt_other"),
        *repeated("the same webhook-timestamp", "webhook-timestamp", str(NOW), str(NOW)),
        *repeated("a webhook-signature before another one", "webhook-signature", v1(), v1(OTHER)),
        *repeated("a webhook-signature after another one", "webhook-signature", v1(OTHER), v1()),
        case("no secret", "secret", secrets=[]),
        case("an empty secret", "secret", secrets=[""]),
        case("a secret without its prefix", "secret", secrets=[SECRET.removeprefix("whsec_")]),
        case("a secret with nothing after its prefix", "secret", secrets=["whsec_"]),
        case("a secret that is not base64", "secret", secrets=["whsec_~~~"]),
        case("a public key that is too short", "secret", secrets=["whpk_c2hvcnQ="]),
        case("a valid secret before an invalid one", "secret", secrets=[SECRET, "whsec_~~~"]),
    ]  # fmt: skip
