"""Defining an endpoint: the endpoint that a request describes, and the rules between its members. No I/O."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.members import read
from gatepost.core.secret_rotation import OVERLAP, overlap_of
from gatepost.core.secrets import Secret
from gatepost.webhooks.endpoints import HIDDEN, MEMBERS, Endpoint, disabled, enabled, is_credential, origin, removed


class EndpointDefinition(NamedTuple):
    """The endpoint that a body of POST /webhooks/endpoints defines, and whether it needs a secret for `signing`."""

    endpoint: Endpoint
    needs_secret: bool
    given_secret: Secret | None
    overlap: timedelta
    dropped_headers: list[str] = []  # noqa: RUF012 (never changed)


def define(
    body: Mapping[str, Any], current: Endpoint | None, *, account: str, at: datetime, url_problem: Callable[[str], str]
) -> EndpointDefinition | Refusal:
    """The endpoint that the body defines: a new one, or `current` with the members sent changed."""
    if current is not None and current.status == "removed":
        if set(body) <= {"id"}:
            return EndpointDefinition(current, needs_secret=False, given_secret=None, overlap=OVERLAP)
        return Refusal("conflict", "id: the endpoint was removed, which is final; create another endpoint", "/id")
    values = _read(body, current, url_problem)
    if isinstance(values, Refusal):
        return values
    dropped = _dropped_headers(body, values, current)
    if dropped and current is not None:
        headers = values.get("headers", current.headers)
        values["headers"] = {name: value for name, value in headers.items() if name not in dropped}
    rotate_secret, secret = values.pop("rotate_secret", None), values.pop("secret", None)
    base = current or Endpoint(ids.new("ep"), account, "", at, at, resumed_at=at)
    status = values.pop("status", base.status)
    endpoint = _with_status(msgspec.structs.replace(base, **values), status, at)
    violation = _secret_violation(endpoint, rotate_secret, secret)
    if violation:
        return MEMBERS.refusal(*violation)
    needs_secret = endpoint.status != "removed" and (
        bool(rotate_secret)
        or endpoint.signing != base.signing
        or not any(stored.is_active(at) for stored in endpoint.secrets)
    )
    if endpoint != base or needs_secret:
        endpoint = msgspec.structs.replace(endpoint, updated_at=at)
    given = None if secret is None else Secret(secret)
    return EndpointDefinition(endpoint, needs_secret, given, overlap_of(rotate_secret), dropped)


def _read(
    body: Mapping[str, Any], current: Endpoint | None, url_problem: Callable[[str], str]
) -> dict[str, Any] | Refusal:
    if current is not None:
        if "secret" in body:
            return MEMBERS.refusal("secret", "only when the endpoint is created; to replace it, send rotate_secret")
        if "headers" in body:
            body = {**body, "headers": _with_hidden_values(body["headers"], current.headers)}
    # The address guard runs first: it is stricter than the schema of a URL, and its messages are more precise.
    problem = url_problem(body["url"]) if isinstance(body.get("url"), str) else ""
    if problem:
        return MEMBERS.refusal("url", problem)
    values = read(MEMBERS, body, creating=current is None)
    if isinstance(values, Refusal):
        return values
    if current is None and values.get("status") == "removed":
        return MEMBERS.refusal("status", "must be active or disabled when the endpoint is created")
    return values


def _with_hidden_values(headers: Any, current: Mapping[str, str]) -> Any:
    """The headers with the stored values in place of HIDDEN, so that sending a response back changes nothing."""
    if not isinstance(headers, dict):
        return headers
    stored = {name.lower(): value for name, value in current.items() if is_credential(name)}
    return {name: stored.get(name.lower(), value) if value == HIDDEN else value for name, value in headers.items()}


def _dropped_headers(body: Mapping[str, Any], values: Mapping[str, Any], current: Endpoint | None) -> list[str]:
    """The headers whose hidden values would go to another origin, and that the request does not set again."""
    if current is None or "url" not in values or origin(values["url"]) == origin(current.url):
        return []
    set_again = {name for name, value in (body.get("headers") or {}).items() if value != HIDDEN}
    return [name for name in values.get("headers", current.headers) if is_credential(name) and name not in set_again]


def _with_status(endpoint: Endpoint, status: str, at: datetime) -> Endpoint:
    match status:
        case "active":
            return enabled(endpoint, at)
        case "disabled":
            return disabled(endpoint, "requested", at)
        case _:
            return removed(endpoint)


def _secret_violation(endpoint: Endpoint, rotate_secret: Any, secret: str | None) -> tuple[str, str] | None:
    """The member that contradicts the other members, and why: `secret`, `rotate_secret` or neither."""
    if rotate_secret and endpoint.status == "removed":
        return "rotate_secret", "a removed endpoint has no secret"
    if secret is not None and rotate_secret:
        return "rotate_secret", "must not be sent together with secret"
    if secret is not None and endpoint.signing != "v1":
        return "secret", "only for signing v1; Gatepost always creates the key for v1a"
    return None
