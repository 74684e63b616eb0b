"""What the operations share: the caller, the answer, the record of a refusal, and the `Idempotency-Key`."""

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core.errors import Refusal
from gatepost.ledger import idempotency
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.store.transaction import Tx

S = TypeVar("S")

# The scopes of the operations, each with its description.
OPERATIONS = {
    "gatepost:clients": "Create and redefine clients. The admin scope: its holder can obtain every other scope.",
    "gatepost:scopes": "Create and redefine scopes.",
    "gatepost:endpoints": "Create and redefine webhook endpoints.",
    "gatepost:subscriptions": "Create and redefine webhook subscriptions, and replay events.",
    "gatepost:deliveries": "Read webhook deliveries.",
    "gatepost:events": "Publish events through the operations plane.",
}
_SECRETS = ("client_secret", "secret")


class Caller(NamedTuple):
    """The client that calls an operation, its account, and the scopes of its token."""

    account: str
    client: str
    scopes: frozenset[str]
    token: str = ""

    def origin(self, request: str, source: str) -> Origin:
        return Origin(self.client, request, source)


def operator(account: str) -> Caller:
    """The caller for commands of the operator, which may do anything in the account."""
    return Caller(account, OPERATOR, frozenset(OPERATIONS))


class Call(NamedTuple):
    """A call of an operation that defines a resource, by a caller that is authorized."""

    caller: Caller
    body: dict[str, Any]
    request: str = ""
    source: str = ""
    idempotency_key: str = ""
    body_bytes: bytes = b""

    @property
    def origin(self) -> Origin:
        return self.caller.origin(self.request, self.source)


class Answer(NamedTuple):
    """The present resource, or the reason for a refusal, and the entry that records it."""

    status: int
    body: dict[str, Any]
    event: str | None
    refusal: Refusal | None = None
    secret: bool = False


Define = Callable[[Tx, S, Account, Call], Answer]
CheckRepeated = Callable[[Tx, Caller, dict[str, Any]], Refusal | None]


def refused(tx: Tx, account: Account, type_: str, origin: Origin, refusal: Refusal, **data: Any) -> Answer:
    """Record the refusal of an authenticated caller. The answer names the entry."""
    data = {"error": refusal.code, "error_description": refusal.detail} | data
    if refusal.pointer:
        data["member"] = refusal.pointer.lstrip("/")
    entry = record(tx, account, type_, origin, origin.actor, data)
    return Answer(refusal.status, {}, entry.name, refusal)


def once(
    tx: Tx, service: S, call: Call, operation: str, define: Define[S], check_repeated: CheckRepeated | None = None
) -> Answer:
    """Run the operation, or return the answer that was kept for the same Idempotency-Key, without its secret.

    Returning a kept answer reads the resource: `check_repeated` decides whether the caller's token allows that.
    """
    account = account_rows.lock(tx, call.caller.account)
    if account is None:
        raise LookupError(call.caller.account)
    if not call.idempotency_key:
        return define(tx, service, account, call)
    key = hashlib.sha256(call.idempotency_key.encode()).digest()
    body_hash = hashlib.sha256(call.body_bytes).digest()
    kept = idempotency.find(tx, account.id, call.caller.client, operation, key)
    if kept is not None:
        kept_hash, status, document = kept
        answer = msgspec.json.decode(document)
        refusal = check_repeated(tx, call.caller, answer["body"]) if check_repeated else None
        if kept_hash != body_hash:
            refusal = Refusal("idempotency_key_reused", "this Idempotency-Key was used with another body")
        if refusal is not None:
            return refused(tx, account, f"{operation}.refused", call.origin, refusal)
        return Answer(status, answer["body"], answer["event"])
    new = define(tx, service, account, call)
    if new.refusal is None:
        public = {name: value for name, value in new.body.items() if name not in _SECRETS}
        document = msgspec.json.encode({"body": public, "event": new.event}).decode()
        idempotency.keep(tx, account.id, call.caller.client, operation, key, body_hash, new.status, document)
    return new


def changed_members(before: Any, after: Any) -> list[str]:
    """The members in which two definitions differ."""
    one, other = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    return [name for name in one if name != "updated_at" and not _is_same(one[name], other[name])]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON. In Python, 1 equals True and 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, bool | int | float) and isinstance(other, bool | int | float):
        return type(one) is type(other) and one == other
    return bool(one == other)
