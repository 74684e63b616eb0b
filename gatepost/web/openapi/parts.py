"""Small schemas that the others are made of."""

from typing import Any

from gatepost.core.json_schema import HOST
from gatepost.egress.address_guard import MAX_URL

Json = dict[str, Any]

INSTANT: Json = {"type": "string", "format": "date-time"}


def text(longest: int, **more: Any) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": longest} | more


def whole(low: int, high: int, description: str) -> Json:
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def flag(description: str) -> Json:
    return {"type": "boolean", "description": description}


def among(choices: list[str], description: str = "") -> Json:
    return {"type": "string", "enum": choices} | ({"description": description} if description else {})


def url(description: str, example: str) -> Json:
    """Of something that the service itself connects to. Whether it may, the guard says."""
    pattern = rf"^https?://{HOST}(?:[/?][!-\"$-\[\]-~]*)?$"
    described = f"{description} https; http only where the service runs with --dev."
    return text(MAX_URL, pattern=pattern, description=described, examples=[example])


def identifier(prefix: str) -> Json:
    """26 digits of base32hex hold two bits more than an id has: the last digit ends in two zeros."""
    return {"type": "string", "pattern": f"^{prefix}_[0-9a-v]{{25}}[048cgkos]$"}


def listed(items: Json, description: str = "", **more: Any) -> Json:
    return {"type": "array", "items": items} | ({"description": description} if description else {}) | more


def shown(members: dict[str, Json], *optional: str, description: str = "") -> Json:
    """An object of an answer: every member is there but those named."""
    found = {"type": "object", "required": [name for name in members if name not in optional], "properties": members}
    return found | ({"description": description} if description else {})


def sent(members: dict[str, Json], *required: str, description: str = "") -> Json:
    """An object of a request: only those named must be there, and nothing else may."""
    found = {"type": "object", "required": list(required), "properties": members, "additionalProperties": False}
    return found | ({"description": description} if description else {})


def when(member: str, value: str, then: Json) -> Json:
    """If a member has this value, the others are further bound."""
    return {"if": {"required": [member], "properties": {member: {"const": value}}}, "then": {"properties": then}}


def or_null(schema: Json) -> Json:
    """In a definition null means the default, or removes a member; in an answer, that there is none."""
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]} | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})


def ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def count(description: str = "") -> Json:
    return {"type": "integer", "minimum": 0} | ({"description": description} if description else {})


METADATA: Json = {
    "type": "object",
    "maxProperties": 50,
    "propertyNames": text(64),
    "additionalProperties": {"type": "string", "maxLength": 512},
    "description": "Pairs of text that mean something to you.",
}


def rotate_secret(longest_overlap: int) -> Json:
    overlap = whole(0, longest_overlap, "In seconds.")
    return {
        "description": "Make another secret. The one before lives on for the overlap, 24 hours unless said.",
        "anyOf": [
            {"type": "boolean"},
            {
                "type": "object",
                "properties": {"overlap": overlap},
                "required": ["overlap"],
                "additionalProperties": False,
            },
        ],
    }
