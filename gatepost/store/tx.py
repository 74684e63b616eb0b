"""Everything the domain may ask of storage, on one page.

A unit of work gets a `Tx`, is synchronous, and may run again. It never commits: its store does, with everything the
unit wrote, or with nothing. Entries of the ledger are buffered and written together at the end of the commit, and their
deliveries with them: an entry cannot be recorded without being fanned out.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from gatepost.accounts import Account
from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import LEAF, Anchor, Head, Seal
from gatepost.oauth import scopes
from gatepost.oauth.clients import Client
from gatepost.oauth.scopes import Scope
from gatepost.oauth.signing_keys import SigningKey, Wrapped
from gatepost.store.chains import Chains
from gatepost.store.effects import MINUTE, Again, Batch, Birth, Effects
from gatepost.store.flows import Flows
from gatepost.store.refusals import Refusals
from gatepost.store.webhooks import Webhooks
from gatepost.webhooks.deliveries import queued
from gatepost.webhooks.fanout import NOBODY, Subscribers, fan_out, subscribers

T = TypeVar("T")
Unit = Callable[["Tx"], T]
Wants = Callable[["Tx"], tuple[bytes, bytes] | None]  # the account and the family that a unit will ask for

_account = msgspec.json.Decoder(Account)
_client = msgspec.json.Decoder(Client)
_scope = msgspec.json.Decoder(Scope)
_key = msgspec.json.Decoder(SigningKey)
_encode = msgspec.json.Encoder().encode

LOWEST = b"\0" * 16
HIGHEST = b"\xff" * 16
NO_WRITING = "a reading unit writes nothing"


class LedgerCounts(NamedTuple):
    """What verification compares with the seals; of one instant, so one statement counts all of it."""

    not_waiting: int  # entries that are not waiting for a seal
    sealed_since: int  # entries that have one later than the one given
    lost: bytes | None  # an entry that waits for a seal and is gone


class Connection(Protocol):
    """What a backend gives: run a statement of `sql/` by name."""

    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]: ...
    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Cache:
    """Definitions by name, true as of a version of the store. Each transaction brings it up to date first."""

    LIMIT = 20_000

    def __init__(self) -> None:
        self.version = -1
        self.mark: object = object()  # changes with every version, and with every time the cache is cleared
        self.things: dict[str, Any] = {}
        self.derived: dict[Any, Any] = {}
        self.ends = -1
        self.standing: dict[Any, Any] = {}

    def refresh(self, connection: Connection) -> None:
        version, ends = connection.rows("version", {})[0]
        if (version, ends) != (self.version, self.ends):
            self.standing = {}
            self.ends = ends
        if version == self.version:
            return
        changed = connection.rows("changes_after", {"version": self.version})
        last = changed[-1][0] if changed else 0
        if last < version or last != self.version + len(changed) or len(changed) > 1000:  # some were forgotten, or many
            self.things.clear()
        else:
            for _, thing in changed:
                self.things.pop(thing, None)
            version = last
        self.version = version
        self.derived = {}
        self.mark = object()

    def clear(self) -> None:
        """Nothing is known any more, for example after a commit that failed."""
        self.version = -1
        self.derived = {}
        self.standing = {}
        self.mark = object()
        self.things.clear()


class Ahead(NamedTuple):
    """What a unit came to with cached definitions alone. It stands if they still hold when its turn to commit comes."""

    mark: object
    result: Any
    effects: Effects


class _NotCached(Exception):
    pass


class _CacheOnly:
    def rows(self, _statement: str, _parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        raise _NotCached

    write = rows

    def rows_each(self, _statement: str, _parameters: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
        raise _NotCached

    def rows_given(self, _statement: str, _rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        raise _NotCached

    write_given = rows_given
    select = rows


def read_together(connection: Connection, cache: Cache, at: datetime, wants: Iterable[Wants]) -> Batch:
    """What the units of a commit say they want, by one statement."""
    tx = Tx(connection, cache, at)
    keys = {found for each in wants if (found := each(tx)) is not None}
    rows = connection.rows_given("families_and_consents", sorted(keys)) if keys else []
    return Batch({(row[0], row[1]): row for row in rows})


def run_ahead(unit: "Unit[Any]", cache: Cache, at: datetime) -> Ahead | None:
    """Run a unit before its transaction; None when it needs more than the cache has, or fails with what that has.

    The mark is taken first: should another thread bring the cache up to date meanwhile, the result will not stand.
    """
    mark = cache.mark
    tx = Tx(_CacheOnly(), cache, at)
    try:
        result = unit(tx)
    except Exception:  # noqa: BLE001 (the cache may be behind: whether it fails is for the transaction to say)
        return None
    return Ahead(mark, result, tx.effects)


class Tx:
    """One unit's view of the store."""

    __slots__ = ("_batch", "_cache", "_changed", "_connection", "_ended", "at", "effects")

    def __init__(self, connection: Connection, cache: Cache, at: datetime, batch: Batch | None = None) -> None:
        self._connection = connection
        self._cache = cache
        self._changed: list[str] = []
        self._ended = False
        self._batch = batch
        self.at = at
        self.effects = Effects()

    @property
    def webhooks(self) -> Webhooks:
        """The rows of the webhook area."""
        return Webhooks(self._connection, self.at, self._cached, self._change)

    @property
    def chains(self) -> Chains:
        """The heads, trees and checkpoints of the ledgers."""
        return Chains(self._connection)

    @property
    def flows(self) -> Flows:
        """The rows of authorizations and what came of them."""
        return Flows(self._connection, self.at, self._cached, self._change, self.end, self.effects, self._batch)

    @property
    def refusals(self) -> Refusals:
        """Counts of failed authentications, and of refusals of public clients."""
        return Refusals(self._write, self.at)

    # --- how it works

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        found = self._connection.rows(statement, parameters)
        return found[0] if found else None

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.rows(statement, parameters)

    def _write(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.write(statement, parameters)

    def select(self, text: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a SELECT whose text was put together from parts of `listing.py`; values are always parameters."""
        return self._connection.select(text, parameters)

    def _cached(self, thing: str, load: Callable[[], T | None]) -> T | None:
        """A definition from the cache. What is not there is not remembered: strangers cannot fill the memory."""
        if thing in self._changed:
            return load()
        found: T | None = self._cache.things.get(thing)
        if found is None:
            found = load()
            if found is not None:
                if len(self._cache.things) >= self._cache.LIMIT:
                    self._cache.things.clear()
                self._cache.things[thing] = found
        return found

    def derived(self, key: Hashable, derive: Callable[[], T]) -> T:
        """What follows from definitions and the key alone: remembered until a definition changes, unless it is None."""
        known = self._cache.derived
        if self._changed:
            return derive()
        found: T | None = known.get(key)
        if found is None:
            found = derive()
            if found is not None and len(known) < self._cache.LIMIT:
                known[key] = found
        return found

    def standing(self, key: Hashable, find: Callable[[], T | None]) -> T | None:
        """What holds until something is ended or a definition changes; remembered unless it is None."""
        known = self._cache.standing
        if self._changed or self._ended:
            return find()
        found: T | None = known.get(key)
        if found is None:
            found = find()
            if found is not None and len(known) < self._cache.LIMIT // 4:
                known[key] = found
        return found

    def end(self) -> None:
        """Something that tokens rest on was ended: nobody goes on remembering that it stands."""
        self._ended = True

    def _change(self, thing: str) -> None:
        self._changed.append(thing)
        self._cache.things.pop(thing, None)

    def finish(self) -> None:
        """Called by the store before it commits: tell every cache what this unit changed."""
        for thing in dict.fromkeys(self._changed):
            [(version,)] = self._write("bump_version")
            self._write("insert_change", version=version, at=clock.milliseconds(self.at), thing=thing)
        if self._ended:
            self._write("bump_ends")

    # --- the ledger

    def record(self, entry: Entry) -> Entry:
        """Write an entry and its deliveries: one for each subscription that matches."""
        to = self.derived(("to", entry.account, entry.type), lambda: self._subscribers(entry))
        if to.each:
            made = fan_out(entry, to, ids.fresh)
            at = clock.milliseconds(self.at)
            self.effects.births += [Birth(each, queued(each, at)) for each in made]
            entry = entry._replace(matched=len(made))
            self.tally(entry.account, "made", len(made))
        self.effects.entries.append(entry)
        return entry

    def _subscribers(self, entry: Entry) -> Subscribers:
        each = subscribers(self.webhooks.matching(entry.account), entry.type)
        account = self.account(entry.account) if each else None
        return Subscribers(each, account.seconds("retention") // 86400) if account else NOBODY

    def tally(self, account: str, what: str, count: int = 1) -> None:
        """Count something that happened in this minute."""
        if count:
            minute = clock.seconds(self.at) // MINUTE * MINUTE
            self.effects.count([((ids.raw(account), minute, what), count)])

    def entry(self, account: str, raw_id: bytes) -> Entry | None:
        found = self._one("entry", account=ids.raw(account), id=raw_id)
        return _entry(found) if found else None

    def entry_keeps(self, account: str, after: bytes, before: bytes, limit: int) -> list[tuple[bytes, int]]:
        """Ids and the days each is kept: what pruning looks at."""
        rows = self._all("entry_keeps", account=ids.raw(account), after=after, before=before, limit=limit)
        return [(raw_id, keep_days) for raw_id, keep_days in rows]

    def pruned_up_to(self, account: str, keep_days: int) -> bytes:
        found = self._one("pruned_up_to", account=ids.raw(account), keep_days=keep_days)
        return found[0] if found else LOWEST

    def put_pruned_up_to(self, account: str, keep_days: int, raw_id: bytes) -> None:
        self._write("put_pruned_up_to", account=ids.raw(account), keep_days=keep_days, id=raw_id)

    def newest_entries(self, account: str, before: bytes, since: bytes, limit: int) -> list[Entry]:
        rows = self._all("entries_newest", account=ids.raw(account), before=before, since=since, limit=limit)
        return [_entry(row) for row in rows]

    def oldest_entries(self, account: str, after: bytes, before: bytes, limit: int) -> list[Entry]:
        rows = self._all("entries_oldest", account=ids.raw(account), after=after, before=before, limit=limit)
        return [_entry(row) for row in rows]

    def count_entries(self, account: str) -> int:
        return int(self._all("count_entries", account=ids.raw(account))[0][0])

    def ledger_counts(self, account: str, after: int) -> LedgerCounts:
        [(not_waiting, leaves, lost)] = self._all("ledger_counts", account=ids.raw(account), after=after, link=bytes(8))
        return LedgerCounts(not_waiting, int(leaves) // LEAF, lost)

    def count_unsealed(self, account: str) -> int:
        return int(self._all("count_unsealed", account=ids.raw(account))[0][0])

    def is_unsealed(self, account: str, raw_id: bytes) -> bool:
        return self._one("is_unsealed", account=ids.raw(account), id=raw_id) is not None

    def unsealed_accounts(self) -> list[str]:
        return [ids.text("acc", account) for (account,) in self._all("unsealed_accounts")]

    def oldest_unsealed(self) -> datetime | None:
        firsts = [self._one("oldest_unsealed", account=ids.raw(account)) for account in self.unsealed_accounts()]
        return min((ids.made_at(first[0]) for first in firsts if first), default=None)

    def unsealed(self, account: str, limit: int) -> list[Entry]:
        return [_entry(row) for row in self._all("unsealed", account=ids.raw(account), limit=limit)]

    def last_seal(self, account: str) -> Head | None:
        found = self._one("last_seal", account=ids.raw(account)) or self._one("anchor", account=ids.raw(account))
        return Head(*found[:2]) if found else None

    def anchor(self, account: str) -> Anchor | None:
        found = self._one("anchor", account=ids.raw(account))
        return Anchor(*found) if found else None

    def seals(self, account: str, after: int, limit: int) -> list[Seal]:
        return [Seal(*row) for row in self._all("seals_after", account=ids.raw(account), after=after, limit=limit)]

    def add_seal(self, account: str, seal: Seal, sealed: Iterable[Entry]) -> bool:
        """One number, one seal, and one seal for each entry. False when another sealer was first."""
        whose = ids.raw(account)
        if not self._write(
            "insert_seal", account=whose, number=seal.number, at=seal.at, leaves=seal.leaves, mac=seal.mac
        ):
            return False
        waiting = [(whose, entry.id) for entry in sealed]
        if len(self._connection.write_given("unseal", waiting)) != len(waiting):
            raise Again("some of these were sealed or pruned meanwhile")
        return True

    def drop_seal(self, account: str, anchor: Anchor) -> bool:
        """Delete the oldest seal and put the anchor in its place; False if another pruner was first."""
        whose = ids.raw(account)
        if not self._write("delete_seal", account=whose, number=anchor.number):
            return False
        self._write("set_anchor", account=whose, number=anchor.number, mac=anchor.mac, proof=anchor.proof)
        return True

    def drop_entries(self, account: str, raw_ids: Iterable[bytes]) -> None:
        """Entries go, also those that no sealer came to in all their time."""
        those = [(ids.raw(account), raw_id) for raw_id in raw_ids]
        self._connection.write_given("delete_entries", those)
        self._connection.write_given("unseal", those)

    def erase_data(self, account: str, raw_id: bytes, data_hash: bytes) -> None:
        self._write("erase_data", account=ids.raw(account), id=raw_id, data_hash=data_hash)

    # --- accounts

    def account(self, account: str) -> Account | None:
        return self._cached(f"account {account}", lambda: self._load_account("account_by_id", id=ids.raw(account)))

    def account_named(self, name: str) -> Account | None:
        return self._load_account("account_by_name", name=name)

    def lock_account(self, account: str) -> Account | None:
        """The account, with every other unit that locks it kept waiting: limits are counted under this."""
        return self._load_account("lock_account", id=ids.raw(account))

    def _load_account(self, statement: str, **parameters: Any) -> Account | None:
        found = self._one(statement, **parameters)
        return _account.decode(found[0]) if found else None

    def accounts(self, after: str, limit: int) -> list[Account]:
        return [_account.decode(row[0]) for row in self._all("list_accounts", after=after, limit=limit)]

    def add_account(self, account: Account) -> bool:
        """False when the name is taken."""
        document = _encode(account).decode()
        return bool(self._write("insert_account", id=ids.raw(account.id), name=account.name, document=document))

    def put_account(self, account: Account) -> None:
        self._write("update_account", id=ids.raw(account.id), document=_encode(account).decode())
        self._change(f"account {account.id}")

    # --- clients

    def client(self, client: str) -> Client | None:
        return self._cached(f"client {client}", lambda: self.client_as_stored(client))

    def client_as_stored(self, client: str) -> Client | None:
        """Past the cache, for who holds the account's lock and is about to change it."""
        raw = ids.parse("cli", client)
        found = self._one("client_by_id", id=raw) if raw else None
        return _client_of(found) if found else None

    def clients(self, account: str, after: bytes, limit: int) -> list[Client]:
        rows = self._all("list_clients", account=ids.raw(account), after=after, limit=limit)
        return [_client_of(row) for row in rows]

    def count_clients(self, account: str) -> int:
        return int(self._all("count_clients", account=ids.raw(account))[0][0])

    def add_client(self, client: Client) -> None:
        self._write("insert_client", **_client_row(client))

    def put_client(self, client: Client) -> None:
        self._write("update_client", **_client_row(client))
        self._change(f"client {client.id}")

    def secrets_used(self, client: Client) -> dict[str, datetime]:
        used = {}
        for secret in client.secrets:
            found = self._one("secret_used", account=ids.raw(client.account), id=ids.raw(secret.id))
            if found:
                used[secret.id] = clock.from_milliseconds(found[0])
        return used

    def use_secret(self, account: str, secret: str, at: datetime) -> None:
        self._write("use_secret", account=ids.raw(account), id=ids.raw(secret), at=clock.milliseconds(at))

    def use_assertion(self, client: str, kind: str, assertion: str, expires_at: datetime) -> bool:
        """True for the first to use this id of a foreign token; the insert decides. Each kind has ids of its own."""
        used, until = _assertion_id(kind, assertion), clock.milliseconds(expires_at)
        return bool(self._write("use_assertion", client=ids.raw(client), id=used, expires_at=until))

    def is_assertion_used(self, client: str, kind: str, assertion: str) -> bool:
        return self._one("assertion_used", client=ids.raw(client), id=_assertion_id(kind, assertion)) is not None

    # --- scopes

    def scope(self, account: str, name: str) -> Scope | None:
        """The account's own scope of this name, else the standard one of OpenID Connect, if there is one."""
        return self._cached(
            f"scope {account} {name}",
            lambda: self.scope_as_stored(account, name) or scopes.standard(account, name),
        )

    def scope_as_stored(self, account: str, name: str) -> Scope | None:
        found = self._one("scope_by_name", account=ids.raw(account), name=name)
        return _scope.decode(found[0]) if found else None

    def scopes(self, account: str, after: str, limit: int) -> list[Scope]:
        rows = self._all("list_scopes", account=ids.raw(account), after=after, limit=limit)
        return [_scope.decode(row[0]) for row in rows]

    def count_scopes(self, account: str) -> int:
        return int(self._all("count_scopes", account=ids.raw(account))[0][0])

    def add_scope(self, scope: Scope) -> None:
        self._write("insert_scope", account=ids.raw(scope.account), name=scope.name, document=_encode(scope).decode())
        self._change(f"scope {scope.account} {scope.name}")  # a decision may have been derived from its absence

    def put_scope(self, scope: Scope) -> None:
        self._write("update_scope", account=ids.raw(scope.account), name=scope.name, document=_encode(scope).decode())
        self._change(f"scope {scope.account} {scope.name}")

    def claim_resource(self, resource: str, account: str) -> bool:
        """Whether the resource is this account's, which it becomes if it is nobody's."""
        self._write("claim_resource", resource=resource, account=ids.raw(account))
        return self.resource_owner(resource) == account

    def resource_owner(self, resource: str) -> str | None:
        found = self._one("resource_owner", resource=resource)
        return ids.text("acc", found[0]) if found else None

    # --- keys

    def server_keys(self) -> dict[str, bytes]:
        return dict(self._all("server_keys"))

    def add_server_key(self, name: str, wrapped: bytes) -> None:
        self._write("insert_server_key", name=name, wrapped=wrapped)

    def put_server_key(self, name: str, wrapped: bytes) -> None:
        self._write("update_server_key", name=name, wrapped=wrapped)

    def probe_write(self, value: int) -> None:
        """Change one row that nothing else reads."""
        self._write("probe_write", value=value)

    def lock_keys(self) -> None:
        self._all("lock_keys")

    def signing_keys(self) -> list[Wrapped]:
        return self._cached("keys", self.signing_keys_as_stored) or []

    def signing_keys_as_stored(self) -> list[Wrapped]:
        return [Wrapped(_key.decode(document), private) for document, private in self._all("signing_keys")]

    def add_signing_key(self, key: SigningKey, private: bytes) -> None:
        document = _encode(key).decode()
        self._write("insert_signing_key", id=ids.raw(key.id), document=document, private=private)
        self._change("keys")

    def put_signing_key(self, key: SigningKey, *, wipe: bool) -> None:
        statement = "wipe_signing_key" if wipe else "update_signing_key"
        self._write(statement, id=ids.raw(key.id), document=_encode(key).decode())
        self._change("keys")

    # --- idempotency

    def answer(self, account: str, caller: str, operation: str, key: bytes) -> tuple[bytes, int, str] | None:
        found = self._one(
            "answer", account=ids.raw(account), caller=caller, operation=operation, id=key,
            at=clock.milliseconds(self.at),
        )  # fmt: skip
        return (found[0], found[1], found[2]) if found else None

    def keep_answer(
        self, account: str, caller: str, operation: str, key: bytes, body: bytes, status: int, answer: str
    ) -> None:
        kept = self._write(
            "insert_answer", account=ids.raw(account), caller=caller, operation=operation, id=key, body_hash=body,
            status=status, answer=answer, at=clock.milliseconds(self.at),
            expires_at=clock.milliseconds(self.at + timedelta(hours=24)),
        )  # fmt: skip
        if not kept:
            raise Again("another request with this Idempotency-Key was first")

    # --- housekeeping, in slices

    def forget(self) -> int:
        """Delete some of what has ended: used assertion ids, kept answers, changes every cache has seen."""
        now = clock.milliseconds(self.at)
        counts = [
            len(self._write("forget_assertions", before=now)),
            len(self._write("forget_answers", before=now)),
            len(self._write("forget_changes", before=now - 3600 * 1000)),
            self.flows.forget(),
        ]
        return max(counts)


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(ids.text("acc", row[0]), *row[1:])


def _assertion_id(kind: str, assertion: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{assertion}".encode("utf-8", "surrogatepass")).digest()[:16]


def _client_row(client: Client) -> dict[str, Any]:
    """`id_token_claims` has a column of its own and is left out of the document, so that it is stored once."""
    document = _encode(msgspec.structs.replace(client, id_token_claims=False)).decode()
    return {
        "account": ids.raw(client.account),
        "id": ids.raw(client.id),
        "document": document,
        "id_token_claims": int(client.id_token_claims),
    }


def _client_of(row: tuple[Any, ...]) -> Client:
    document, id_token_claims = row
    return msgspec.structs.replace(_client.decode(document), id_token_claims=bool(id_token_claims))
