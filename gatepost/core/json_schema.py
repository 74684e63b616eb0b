"""JSON Schema (draft 2020-12): constructors for the schemas of members, and the check of a value against a schema.

`problem` interprets the keywords that describe one member, so that its check and its published schema cannot differ.
Conditions between members (`if`, `$ref`) are not interpreted: they describe rules that are functions of their own.
A schema may describe its values in words under EXPECTS, which is not published.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import NoneType
from typing import Any

Json = dict[str, Any]

EXPECTS = "x-expects"
DATE_TIME: Json = {"type": "string", "format": "date-time"}
HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"  # a name or an address, and a port
PATH_AND_QUERY = r"(?:[/?][!-\"$-\[\]-~]*)?"  # printable ASCII without fragment and backslash


def string(least: int, most: int, *, expects: str = "", **keywords: Any) -> Json:
    """A string of `least` to `most` characters."""
    size = {"minLength": least, "maxLength": most} if least else {"maxLength": most}
    return {"type": "string", **size, **_expecting(expects), **keywords}


def matching(pattern: str, *, expects: str, **keywords: Any) -> Json:
    """A string that the pattern matches as a whole: JSON Schema does not anchor patterns by itself."""
    return {"type": "string", "pattern": f"^{pattern}$", EXPECTS: expects, **keywords}


def integer(least: int, most: int, *, unit: str = "", **keywords: Any) -> Json:
    """A whole number from `least` to `most`."""
    expects = f"a whole number{f' of {unit}' if unit else ''} from {least} to {most}"
    return {"type": "integer", "minimum": least, "maximum": most, EXPECTS: expects, **keywords}


def count(**keywords: Any) -> Json:
    """A whole number that is not negative."""
    return {"type": "integer", "minimum": 0, **keywords}


def boolean(**keywords: Any) -> Json:
    """True or false."""
    return {"type": "boolean", **keywords}


def one_of(choices: Iterable[str], **keywords: Any) -> Json:
    """One of these strings."""
    return {"type": "string", "enum": list(choices), **keywords}


def array(items: Json, *, expects: str = "", **keywords: Any) -> Json:
    """A list of such items."""
    return {"type": "array", "items": items, **_expecting(expects), **keywords}


def mapping(names: Json, values: Json, most: int, *, expects: str = "", **keywords: Any) -> Json:
    """An object whose member names are data."""
    bounds = {"maxProperties": most, "propertyNames": names} | ({"additionalProperties": values} if values else {})
    return {"type": "object", **bounds, **_expecting(expects), **keywords}


def _expecting(words: str) -> Json:
    return {EXPECTS: words} if words else {}


def identifier(prefix: str, **keywords: Any) -> Json:
    """The 26 base32hex digits hold two bits more than the 16 bytes of an id: the last digit ends in two zeros."""
    return matching(f"{prefix}_[0-9a-v]{{25}}[048cgkos]", expects=f"an id that starts with {prefix}_", **keywords)


def request_object(members: dict[str, Json], *required: str, **keywords: Any) -> Json:
    """An object in a request: only the required members must be present, and no other member is allowed."""
    body = {"required": list(required), "properties": members, "additionalProperties": False}
    return {"type": "object", **body, **keywords}


def response_object(members: dict[str, Json], *optional: str, **keywords: Any) -> Json:
    """An object in a response: every member is present except the optional ones."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "required": required, "properties": members, **keywords}


def nullable(schema: Json) -> Json:
    """A value of this schema, or null."""
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]} | ({"enum": [*schema["enum"], None]} if "enum" in schema else {})


def ref(schema: str) -> Json:
    """A reference to a schema of the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{schema}"}


def published(schema: Json) -> Json:
    """Return the schema without the words for error messages."""
    return {name: _published(value) for name, value in schema.items() if name != EXPECTS}


def _published(value: Any) -> Any:
    match value:
        case dict():
            return published(value)
        case list():
            return [_published(item) for item in value]
    return value


# --- checking a value


def problem(schema: Json, value: Any) -> str:
    """Return what is wrong with the value, worded to follow its name, or "" if nothing is.

    The cost is linear in the size of the value: lengths are checked before patterns and parts.
    """
    if not all(holds(schema[keyword], value) for keyword, holds in _KEYWORDS.items() if keyword in schema):
        return f"must be {expectation(schema)}"
    missing = [name for name in schema.get("required", ()) if isinstance(value, dict) and name not in value]
    if missing:
        return f"must have the member {missing[0]}"
    for name, part, inner in _parts(schema, value):
        if inner_problem := problem(part, inner):
            return f"{name} {inner_problem}"
    if schema.get("uniqueItems") and isinstance(value, list) and len(set(value)) != len(value):
        return "must not contain an item twice"
    if "anyOf" in schema and all(problem(alternative, value) for alternative in schema["anyOf"]):
        return f"must be {expectation(schema)}"
    return ""


def expectation(schema: Json) -> str:
    """Return in words what a value must be."""
    if EXPECTS in schema:
        return str(schema[EXPECTS])
    if "enum" in schema:
        return "one of " + ", ".join("null" if choice is None else str(choice) for choice in schema["enum"])
    match schema.get("type"):
        case "boolean":
            return "true or false"
        case "string":
            return "a string" + _size(schema.get("minLength"), schema.get("maxLength"), "characters")
        case "array":
            return "a list" + _size(schema.get("minItems"), schema.get("maxItems"), "items")
        case "object":
            return "an object" + _size(None, schema.get("maxProperties"), "members")
        case [kind, "null"]:
            return f"{expectation(schema | {'type': kind})}, or null"
    return "of another type"


def _size(least: int | None, most: int | None, unit: str) -> str:
    if most is None:
        return f" of at least {least} {unit}" if least else ""
    return f" of {least} to {most} {unit}" if least else f" of at most {most} {unit}"


def _parts(schema: Json, value: Any) -> Iterator[tuple[str, Json, Any]]:
    """Yield the items, names and members of a value, each with the schema for it."""
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value, 1):
            yield f"item {number}", schema["items"], item
    elif isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, item in value.items():
            if "propertyNames" in schema:
                yield f"{name[:64]!r}", schema["propertyNames"], name
            yield f"{name[:64]}", known.get(name) or (other if isinstance(other, dict) else _UNKNOWN), item


_UNKNOWN: Json = {"not": {}, EXPECTS: "left out: it is unknown here"}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "array": list, "object": dict, "null": NoneType,
}  # fmt: skip


def _is_type(kinds: str | list[str], value: Any) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):  # in Python a bool is an int, in JSON it is not a number
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names if name != "boolean")


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern of JSON Schema. In Python, `$` also matches before a line break at the end; `\Z` does not."""
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)


# keyword → whether it holds for a value. Keywords of other types than the value's do not apply to it.
_KEYWORDS: dict[str, Callable[[Any, Any], bool]] = {
    "type": _is_type,
    "enum": lambda choices, value: any(choice == value and type(choice) is type(value) for choice in choices),
    "minLength": lambda least, value: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda most, value: not isinstance(value, str) or len(value) <= most,
    "minimum": lambda least, value: not isinstance(value, int | float) or value >= least,
    "maximum": lambda most, value: not isinstance(value, int | float) or value <= most,
    "minItems": lambda least, value: not isinstance(value, list) or len(value) >= least,
    "maxItems": lambda most, value: not isinstance(value, list) or len(value) <= most,
    "maxProperties": lambda most, value: not isinstance(value, dict) or len(value) <= most,
    "pattern": lambda pattern, value: not isinstance(value, str) or _pattern(pattern).search(value) is not None,
    "not": lambda other, value: problem(other, value) != "",
}
