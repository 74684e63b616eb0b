"""Reading JSON strictly: no duplicate keys, no NUL, nothing that a database or a reader of ours could not give back."""

import json
import math
from typing import Any, NamedTuple

from gatepost.errors import Refusal

_DEEPEST = 32


class Json(NamedTuple):
    """What was read, which may itself be nothing."""

    value: Any


def read_json(text: str | bytes) -> Json | Refusal:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            return Refusal("invalid_request", "the body is not UTF-8")
    duplicate: list[str] = []
    try:
        found = _strict_json(text, duplicate)
    except ValueError as error:
        return Refusal("invalid_request", f"the body is not JSON: {error}")
    except RecursionError:
        return Refusal("invalid_request", f"the body is nested more than {_DEEPEST} deep")
    if duplicate:
        name = duplicate[0][:64].encode("utf-8", "replace").decode()
        return Refusal("invalid_request", f"{name!a}: the member stands twice", f"/{name}")
    fault = _fault(found, "", 0)
    if fault is not None:
        return Refusal("invalid_request", f"{fault[0] or 'the body'} {fault[1]}", fault[0])
    return Json(found)


def _strict_json(text: str, duplicate: list[str]) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        whole = dict(found)
        if len(whole) != len(found):
            names = [name for name, _ in found]
            duplicate.extend(name for name in whole if names.count(name) > 1)
        return whole

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def integer(digits: str) -> int:
        return int(digits[:25])  # enough to see that it is too large; Python refuses to read thousands of digits

    return json.loads(text, object_pairs_hook=pairs, parse_constant=no_constant, parse_int=integer)


def _fault(value: Any, pointer: str, depth: int) -> tuple[str, str] | None:
    """Where, and what is wrong there: what a database cannot take or a reader of ours could not give back."""
    match value:
        case str():
            return None if value.isprintable() or _storable(value) else (pointer, _UNSTORABLE)
        case int() if not -(1 << 63) <= value < 1 << 63:
            return pointer, "is a number beyond 64 bits"
        case float() if not math.isfinite(value):
            return pointer, "is a number beyond 64 bits"
        case dict() | list() if depth == _DEEPEST:
            return pointer, f"is nested more than {_DEEPEST} deep"
        case dict():
            for name, inner in value.items():
                within = f"{pointer}/{name[:64].replace('~', '~0').replace('/', '~1')}"  # RFC 6901, section 3
                found = _fault(inner, within, depth + 1) if _storable(name) else (pointer, _UNSTORABLE)
                if found is not None:
                    return found
        case list():
            for index, inner in enumerate(value):
                found = _fault(inner, f"{pointer}/{index}", depth + 1)
                if found is not None:
                    return found
    return None


_UNSTORABLE = "holds a NUL or half a character pair"


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
