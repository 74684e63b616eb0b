"""Heads of all chains, recorded in the operator's ledger with signed checkpoints, and their comparison."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gatepost import accounts
from gatepost.accounts import account_rows, lookup
from gatepost.core import ids
from gatepost.ledger import chain_rows, checkpoint, checkpoint_rows, entry_rows, seal, seal_rows
from gatepost.ledger.chain import Chain, RecordedHead
from gatepost.ledger.checkpoint import Checkpoint, Signer
from gatepost.ledger.entries import SERVICE, Entry, Origin
from gatepost.ledger.record import record
from gatepost.store.interface import Reader
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

HEADS = "account.heads.recorded"
MAX_HEADS = 1000  # in one entry
_PAGE = 500


# --- heads in the operator's ledger


class Heads(msgspec.Struct, frozen=True):
    """The data of an entry about heads: the head of each account, and the previous entry of this type."""

    heads: dict[str, str]
    previous: str | None = None


_decode = msgspec.json.Decoder(Heads).decode


def heads_in(entry: Entry) -> Heads | None:
    """The heads that an entry of the operator's ledger records. None if its data was erased or altered."""
    try:
        return _decode(entry.data or "")
    except msgspec.MsgspecError:
        return None


class DueHeads(NamedTuple):
    """Chains that have grown since their heads were recorded, with their signed checkpoints."""

    chains: list[tuple[str, Chain, str]]
    next: str  # the account after which the next page starts; empty at the end


def due(tx: Tx, key: bytes, signer: Signer, base_url: str, after: str = "") -> DueHeads:
    """A page of heads to record. This signs checkpoints, so it runs in a unit that only reads."""
    page = checkpoint_rows.page(tx, key, after, MAX_HEADS)
    grown = []
    for account, chain, recorded in page:
        if chain is None or (recorded is not None and recorded.number >= chain.head.number):
            continue
        if chain.grown < chain.head.number:
            continue  # its tree is still being built
        root = Checkpoint(checkpoint.origin(base_url, account), chain.tree.size, chain.tree.root())
        grown.append((account, chain, signer.sign(root)))
    return DueHeads(grown, page[-1].account if len(page) == MAX_HEADS else "")


def record_heads(tx: Tx, key: bytes, grown: Sequence[tuple[str, Chain, str]]) -> int:
    """Record these heads with one entry in the operator's ledger. Returns how many were recorded.

    The operator's own head is not recorded there, since the entry changes it. The seals of other accounts name it.
    """
    named = account_rows.load_named(tx, accounts.OPERATOR)
    operator = account_rows.lock(tx, named.id) if named else None
    if operator is None:
        return 0
    last = checkpoint_rows.load(tx, key, operator.id)
    recorded = checkpoint_rows.load_many(tx, key, [account for account, _, _ in grown])
    new = {
        account: (chain, note)
        for account, chain, note in grown
        if (before := recorded.get(account)) is None or before.number < chain.head.number
    }
    entry_id = last.entry if last else LOWEST
    heads = {account: str(chain.head) for account, (chain, _) in new.items() if account != operator.id}
    if heads:
        data = {"heads": heads, "previous": ids.text("evt", last.entry) if last and last.entry != LOWEST else None}
        entry_id = record(tx, operator, HEADS, Origin(SERVICE), operator.id, data).id
    rows = {
        account: RecordedHead(chain.head.number, chain.tree.size, note, entry_id)
        for account, (chain, note) in new.items()
    }
    if heads and operator.id not in rows:
        rows[operator.id] = (last or RecordedHead(-1, 0, "", entry_id))._replace(entry=entry_id)
    checkpoint_rows.save(tx, key, rows.items())
    return len(new)


# --- checking the heads


def check_heads(store: Reader, key: bytes, only: str | None = None) -> dict[str, str]:
    """Compare the heads in the operator's ledger with the present chains. Returns problems by account.

    The operator's ledger itself is verified like any other.
    """
    problems = _accounts_without_row(store) if only is None else {}
    operator = store.read_now(lambda tx: account_rows.load_named(tx, accounts.OPERATOR))
    if operator is None:
        return problems
    last = store.read_now(lambda tx: checkpoint_rows.load(tx, key, operator.id))
    seen: set[bytes] = set()
    named: set[bytes] = {last.entry} if last is not None and last.entry != LOWEST else set()
    after = LOWEST
    while page := store.read_now(lambda tx, after=after: entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE)):  # type: ignore[misc]
        after = page[-1].id
        recorded: list[tuple[Entry, Heads]] = []
        for entry in page:
            if entry.type != HEADS:
                continue
            seen.add(entry.id)
            heads = heads_in(entry)
            if heads is None:
                problems.setdefault(operator.id, f"the heads in entry {entry.name} were erased or altered")
                continue
            recorded.append((entry, heads))
            previous = ids.parse("evt", heads.previous or "")
            if previous is not None:
                named.add(previous)
        found = store.read_now(lambda tx, recorded=recorded: _head_problems(tx, key, recorded, only))  # type: ignore[misc]
        for account, problem in found.items():
            problems.setdefault(account, problem)
    missing = store.read_now(lambda tx: _missing_entry(tx, operator.id, named - seen))
    if missing is not None:
        problems.setdefault(operator.id, f"entry {ids.text('evt', missing)}, which recorded heads, is missing")
    for account in store.read_now(chain_rows.removed_accounts):
        problems.setdefault(account, "the account was removed, but its chain record still exists")
    return {account: problem for account, problem in problems.items() if only in (None, account, operator.id)}


def _head_problems(tx: Tx, key: bytes, recorded: list[tuple[Entry, Heads]], only: str | None) -> dict[str, str]:
    """The accounts whose chain no longer has a recorded head."""
    heads = [
        (account, head, entry)
        for entry, data in recorded
        for account, text in data.heads.items()
        if only in (None, account) and ids.parse("acc", account) and (head := seal.parse_head(text)) is not None
    ]
    macs = seal_rows.macs(tx, ((account, head.number) for account, head, _ in heads))
    anchors = seal_rows.anchors(tx, (account for account, _, _ in heads))
    existing = seal_rows.existing_accounts(tx, (account for account, _, _ in heads))
    problems: dict[str, str] = {}
    for account, head, entry in heads:
        if account in problems:
            continue
        if account not in existing:
            problems[account] = f"the account was removed; entry {entry.name} of the operator's ledger has its head"
        elif head.number and macs.get((account, head.number)) != head.mac:
            anchor = anchors.get(account)
            if anchor is None or not seal.is_pruned(key, account, anchor, head):
                problems[account] = (
                    f"seal {head.number} is missing or differs from the operator's ledger (entry {entry.name}): "
                    "the chain was cut off or rewritten"
                )
    return problems


def _missing_entry(tx: Tx, operator: str, raw_ids: set[bytes]) -> bytes | None:
    """The first of these entries that is missing although it must still be kept.

    They are kept for 30 days at least. The account's own setting is not sealed, so it is not used here.
    """
    recent = [raw_id for raw_id in sorted(raw_ids) if ids.made_at(raw_id) > tx.at - timedelta(days=30)]
    return next((raw_id for raw_id in recent if entry_rows.load(tx, operator, raw_id) is None), None)


def _accounts_without_row(store: Reader) -> dict[str, str]:
    """Accounts that do not exist, but have entries or seals. The accounts are read last, since none is ever removed."""
    used = store.read_now(lambda tx: {*entry_rows.raw_accounts(tx), *seal_rows.raw_accounts(tx)})
    existing = {ids.raw(account.id) for account in lookup.every(store)}
    names = [ids.text("acc", raw) if ids.is_raw(raw) else f"account {raw!r}" for raw in used - existing]
    return dict.fromkeys(sorted(names), "the account was removed, but its entries or seals still exist")
