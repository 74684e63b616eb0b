"""Strict JSON parsing: no duplicate members, no NUL, nothing that a database or a JSON parser would not return as sent.

The cost grows linearly with the size of the text, whatever it contains, because the text comes from callers.
"""

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from gatepost.core.errors import Refusal

_MAX_DEPTH = 32
_SAFE_LENGTH = 16  # characters of a number with at most 15 digits and a point
_MAX_DIGITS = 800  # the longest exact number has 767


class Json(NamedTuple):
    """The parsed value. It is None for `null`."""

    value: Any


def read_json(text: str | bytes) -> Json | Refusal:
    """Parse a text that a caller sent."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            return Refusal("invalid_request", "the body is not UTF-8")
    try:
        value = _DECODER.decode(text)
    except _Repeated as error:
        name = error.name[:64].encode("utf-8", "replace").decode()
        return Refusal("invalid_request", f"{name!a}: the member is repeated", f"/{name}")
    except ValueError as error:
        return Refusal("invalid_request", f"the body is not JSON: {error}")
    except RecursionError:
        return Refusal("invalid_request", f"the body is nested more than {_MAX_DEPTH} deep")
    problem = _problem(value, 0)
    if problem is not None:
        return Refusal("invalid_request", f"{problem[0] or 'the body'} {problem[1]}", problem[0])
    return Json(value)


class _Repeated(Exception):
    """A member is repeated."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Repeated(_first_repeated(name for name, _ in pairs))
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    return int(digits[:25])  # enough to detect a number that is too large; Python refuses thousands of digits


def _exact(text: str) -> float:
    """Return the number, or NaN if a 64-bit floating-point number would not have the digits that were sent.

    Fifteen digits always fit. More fit if they are the shortest ones for the nearest such number, or those that it has
    when it is written with as many: 0.10000000000000001 is 0.1.
    """
    value = float(text)
    if (len(text) <= _SAFE_LENGTH and "e" not in text and "E" not in text) or not math.isfinite(value):
        return value
    digits = _digits(text)
    if not digits or digits.rstrip("0") == _digits(repr(value)).rstrip("0"):
        return value
    if len(digits) > _MAX_DIGITS:
        return math.nan
    return value if digits == _digits(f"{value:.{len(digits) - 1}e}") else math.nan


def _digits(number: str) -> str:
    """Return the digits of a number, from the first one that is not 0."""
    return number.lower().partition("e")[0].lstrip("-").replace(".", "").lstrip("0")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members, parse_constant=_no_constant, parse_int=_integer, parse_float=_exact
)


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def _problem(value: Any, depth: int) -> tuple[str, str] | None:
    """Return a JSON pointer to a value that a database or a JSON parser would not return as sent, and what is wrong.

    The pointer (RFC 6901, section 3) is built only when there is a problem.
    """
    match value:
        case str():
            return None if value.isprintable() or _storable(value) else ("", _UNSTORABLE)
        case int() if not -(1 << 63) <= value < 1 << 63:
            return "", "is a number beyond 64 bits"
        case float() if not math.isfinite(value):
            return "", _INEXACT if math.isnan(value) else "is a number beyond 64 bits"
        case dict() | list() if depth == _MAX_DEPTH:
            return "", f"is nested more than {_MAX_DEPTH} deep"
        case dict():
            for name, inner in value.items():
                if not (name.isprintable() or _storable(name)):
                    return "", _UNSTORABLE
                problem = _problem(inner, depth + 1)
                if problem is not None:
                    return f"/{name[:64].replace('~', '~0').replace('/', '~1')}{problem[0]}", problem[1]
        case list():
            for index, inner in enumerate(value):
                problem = _problem(inner, depth + 1)
                if problem is not None:
                    return f"/{index}{problem[0]}", problem[1]
    return None


_INEXACT = "is a number with more digits than 64-bit floating point can hold; send it as a string"
_UNSTORABLE = "contains a NUL or an unpaired surrogate"


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
