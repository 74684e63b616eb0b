"""Responses to commands with --remote: what commands read is checked, and they read nothing else."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gatepost.cli import kinds, profiles
from gatepost.cli.remote import RemoteOperations
from gatepost.core.errors import Unavailable
from tests import inside
from tests.receiver import Answer, Receiver, Request, receiver

# All members that commands read, and no others.
DELIVERY: dict[str, Any] = {
    "id": "dlv_06gv48sk61otn7ergoprfat0mc", "subscription_id": "sub_1", "status": "failed",
    "created_at": "2026-11-15T08:00:00.000Z", "ended_at": "2026-11-15T08:00:02.000Z",
    "event": {"id": "evt_1", "type": "invoice.paid"}, "endpoint": {"url": "https://a.example"},
    "attempts": [
        {"number": 1, "started_at": "2026-11-15T08:00:00.000Z", "outcome": "failed", "response_code": None,
         "failure": "dns", "duration_ms": 1.5, "detail": "unknown host"},
    ],
    "retries": {"next_at": None, "plan": [{"number": 2, "at": "2026-11-15T08:00:05.000Z", "because": "schedule"}]},
}  # fmt: skip
SUBSCRIPTION: dict[str, Any] = {
    "id": "sub_1", "endpoint_id": "ep_1", "events": ["*"], "filter": {}, "status": "active", "description": "",
}  # fmt: skip
ENDPOINT: dict[str, Any] = {
    "id": "ep_1", "url": "https://a.example", "status": "active", "disabled_reason": None, "held": 0,
    "health": {"consecutive_failures": 0, "failing_since": None, "will_be_disabled_at": None},
    "subscriptions": [SUBSCRIPTION],
}  # fmt: skip
PAGES = {
    "": {"data": [DELIVERY], "next_cursor": None},
    "view=endpoints": {"data": [ENDPOINT], "next_cursor": None},
    "include=payload": {"data": [DELIVERY | {"payload": {}}], "next_cursor": None},
}
KINDS = {kind.noun: kind for kind in (kinds.CLIENT, kinds.SCOPE, kinds.ENDPOINT, kinds.SUBSCRIPTION)}
DEFINED: dict[str, dict[str, Any]] = {
    "client": {"client_id": "cli_1", "client_secret": "gps_1", "secrets": [{"expires_at": None}]},
    "scope": {"name": "read"},
    "endpoint": {"id": "ep_1", "secret": "whsec_1", "secrets": [{"expires_at": None}]},
    "subscription": {"id": "sub_1"},
}
OPTIONAL = {"client": {"client_secret", "secrets"}, "endpoint": {"secret"}}
EXPLANATION = {"decision": "issue", "rules": [{"rule": "scope_given", "held": True}]}


def respond(request: Request) -> Answer:
    path, _, query = request.headers[":path"].partition("?")
    bodies: dict[str, Any] = {KINDS[noun].path: body for noun, body in DEFINED.items()}
    bodies["/webhooks/deliveries"] = PAGES["view=endpoints" if "view=endpoints" in query else ""]
    bodies["/oauth/tokens"] = EXPLANATION if "prefer" in request.headers else {"access_token": "a"}
    return 200, {}, json.dumps(bodies[path]).encode()


def operations_of(local: Receiver) -> RemoteOperations:
    return RemoteOperations(profiles.Profile(f"http://127.0.0.1:{local.port}", "cli_1", "gps_1"))


@pytest.mark.parametrize(
    "arguments",
    [
        "delivery list", "delivery list -q", f"delivery show {DELIVERY['id']}", f"delivery retry {DELIVERY['id']}",
        "endpoint list", "endpoint show ep_1", "endpoint disable ep_1", "endpoint rotate-secret ep_1",
        "endpoint create url=https://a.example", "endpoint create url=https://a.example --save {file} -q",
        "subscription list", "subscription list --endpoint ep_1", "subscription show sub_1",
        "client rotate-secret cli_1", "client create client_name=a --save {file}", "scope create read -q",
        "token get --scope read -q", "token get --scope read --explain",
    ],
)  # fmt: skip
def test_commands_read_only_members_that_are_checked(arguments: str, tmp_path: Path) -> None:
    with receiver(respond) as local:
        remote = {"GATEPOST_REMOTE": f"http://127.0.0.1:{local.port}"}
        credentials = {"GATEPOST_CLIENT_ID": "cli_1", "GATEPOST_CLIENT_SECRET": "gps_1"}
        inside.run(tuple(arguments.format(file=tmp_path / "file").split()), remote | credentials, check=True)


def altered(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """Yield the JSON value without one of its members or with one of another type, for each member at any depth."""
    match value:
        case dict():
            for name, member in value.items():
                others = {other: value[other] for other in value if other != name}
                yield (*path, name), "removed", others
                yield (*path, name), "changed", others | {name: 5 if isinstance(member, dict) else {}}
                for where, how, inner in altered(member, (*path, name)):
                    yield where, how, others | {name: inner}
        case list():
            for item in value:
                yield path, "changed", [{} if isinstance(item, str) else 5]
                yield from ((where, how, [inner]) for where, how, inner in altered(item, path))


def accepted(body: dict[str, Any], ask: Callable[[RemoteOperations], object]) -> bool:
    """Whether the command accepts this response."""
    with receiver((200, {}, json.dumps({"access_token": "a"} | body).encode())) as local:
        try:
            ask(operations_of(local))
        except Unavailable as error:
            if str(error) == "the response is not from Gatepost; check --remote":
                return False
            raise
    return True


@pytest.mark.parametrize("query", PAGES)
def test_a_page_without_what_commands_read_is_not_from_gatepost(query: str) -> None:
    parameters = dict(pair.split("=") for pair in query.split("&") if pair)
    assert accepted(PAGES[query], lambda operations: operations.deliveries(parameters))
    found = {
        (*where, how)
        for where, how, page in altered(PAGES[query])
        if accepted(page, lambda operations: operations.deliveries(parameters))
    }
    assert found == ({("data", "subscriptions", "filter", "changed")} if query == "view=endpoints" else set())


@pytest.mark.parametrize("noun", DEFINED)
def test_a_definition_without_what_commands_read_is_not_from_gatepost(noun: str) -> None:
    found = {
        (*where, how)
        for where, how, body in altered(DEFINED[noun])
        if accepted(body, lambda operations: operations.define(KINDS[noun], {}))
    }
    assert found == {(member, "removed") for member in OPTIONAL.get(noun, ())}


@pytest.mark.parametrize(
    "token",
    [
        b'{"access_token": 5}', b'{"access_token": ""}', b'{"access_token": "a\\nb"}', b'{"access_token": "\\u20ac"}',
        b'{"access_token": "a", "more": "\xff"}', b'{"access_token": "a", "more": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["number", "empty", "newline", "not ASCII", "not UTF-8", "deep"],
)  # fmt: skip
def test_what_is_no_token_is_not_from_gatepost(token: bytes) -> None:
    with receiver((200, {}, token)) as local, pytest.raises(Unavailable, match="not from Gatepost; check --remote"):
        operations_of(local).request_token("read")


def test_pages_that_would_never_end_are_not_from_gatepost() -> None:
    page = json.dumps({"access_token": "a", "data": [], "next_cursor": "same"}).encode()
    with receiver((200, {}, page)) as local:
        operations = operations_of(local)
        assert operations.deliveries({"cursor": "other"})["next_cursor"] == "same"
        with pytest.raises(Unavailable, match="not from Gatepost; check --remote"):
            operations.deliveries({"cursor": "same"})
