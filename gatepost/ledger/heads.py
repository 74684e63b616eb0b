"""Heads of all chains, recorded in the operator's ledger with signed checkpoints, and their comparison."""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, TypeVar

import msgspec

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.ledger import (
    chain_rows,
    checkpoint,
    checkpoint_rows,
    entries,
    entry_rows,
    seal,
    seal_rows,
)
from gatepost.ledger.chain import Chain, Recorded
from gatepost.ledger.checkpoint import Checkpoint, Signer
from gatepost.ledger.entries import SERVICE, Entry, Origin
from gatepost.ledger.record import append_entry
from gatepost.store.interface import Reader
from gatepost.store.transaction import HIGHEST, LOWEST, Tx

T = TypeVar("T")
HEADS = "account.heads.recorded"
MOST_HEADS = 1000  # heads in one entry
_PAGE = 500


# --- heads in the operator's ledger


class Heads(NamedTuple):
    """The data of an entry about heads: the head of each account, and the previous entry of this type."""

    heads: dict[str, str]
    previous: str | None


def heads_in(entry: Entry) -> Heads:
    found = msgspec.json.decode(entry.data or "{}")
    return Heads(found.get("heads", {}), found.get("previous"))


class DueHeads(NamedTuple):
    """Chains that have moved since they were recorded, with their signed checkpoints."""

    chains: list[tuple[str, Chain, str]]
    next: str  # the account after which the next page starts; empty at the end


def due(tx: Tx, key: bytes, signer: Signer, base_url: str, after: str = "") -> DueHeads:
    """A page of heads to record. This signs checkpoints, so it runs in a unit that only reads."""
    page = checkpoint_rows.page(tx, key, after, MOST_HEADS)
    found = []
    for each in page:
        if each.chain is None or (each.recorded is not None and each.recorded.number >= each.chain.head.number):
            continue
        if each.chain.grown < each.chain.head.number:
            continue  # its tree is still being built
        tree = each.chain.tree
        note = signer.sign(Checkpoint(checkpoint.origin(base_url, each.account), tree.size, tree.root()))
        found.append((each.account, each.chain, note))
    return DueHeads(found, page[-1].account if len(page) == MOST_HEADS else "")


def record_heads(tx: Tx, key: bytes, moved: Iterable[tuple[str, Chain, str]]) -> int:
    """Record these heads with one entry in the operator's ledger. Returns how many were recorded.

    The operator's own head is not recorded there, since the entry moves it. The seals of other accounts name it.
    """
    named = account_rows.load_named(tx, accounts.OPERATOR)
    operator = account_rows.lock(tx, named.id) if named else None
    if operator is None:
        return 0
    last = checkpoint_rows.load(tx, key, operator.id)
    those = [(account, found, note) for account, found, note in moved if not _is_recorded(tx, key, account, found)]
    entry_id = last.entry if last else LOWEST
    others = {account: str(found.head) for account, found, _ in those if account != operator.id}
    if others:
        data = {"heads": others, "previous": ids.text("evt", last.entry) if last and last.entry != LOWEST else None}
        entry = entries.new(
            HEADS, account=operator.id, origin=Origin(SERVICE), subject=operator.id, data=data, at=tx.at,
            keep_days=operator.seconds("audit_retention") // 86400,
        )  # fmt: skip
        entry_id = append_entry(tx, entry).entry.id
    rows = [(account, Recorded(found.head.number, found.tree.size, note, entry_id)) for account, found, note in those]
    if others and operator.id not in {account for account, _ in rows}:
        known = last or Recorded(-1, 0, "", entry_id)
        rows.append((operator.id, known._replace(entry=entry_id)))
    checkpoint_rows.save(tx, key, rows)
    return len(those)


def _is_recorded(tx: Tx, key: bytes, account: str, found: Chain) -> bool:
    known = checkpoint_rows.load(tx, key, account)
    return known is not None and known.number >= found.head.number


# --- checking the heads


def check_heads(store: Reader, key: bytes, only: str | None = None) -> dict[str, str]:
    """Compare the heads in the operator's ledger with the present chains. Returns problems by account.

    The operator's ledger itself is verified like any other.
    """
    operator = store.read_now(lambda tx: account_rows.load_named(tx, accounts.OPERATOR))
    if operator is None:
        return {}
    last = store.read_now(lambda tx: checkpoint_rows.load(tx, key, operator.id))
    problems: dict[str, str] = {}
    seen: set[bytes] = set()
    named: set[bytes] = {last.entry} if last is not None and last.entry != LOWEST else set()
    after = LOWEST
    while page := store.read_now(lambda tx, after=after: entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE)):  # type: ignore[misc]
        after = page[-1].id
        told = [(entry, heads_in(entry)) for entry in page if entry.type == HEADS]
        seen.update(entry.id for entry, _ in told)
        named.update(ids.raw(found.previous) for _, found in told if found.previous)
        for account, problem in store.read_now(lambda tx, told=told: _differing(tx, key, told, only)).items():  # type: ignore[misc]
            problems.setdefault(account, problem)
    lost = store.read_now(lambda tx: _lost(tx, operator, named - seen))
    if lost is not None:
        problems.setdefault(operator.id, f"entry {ids.text('evt', lost)}, which recorded heads, is missing")
    for account in store.read_now(chain_rows.without_account):
        problems.setdefault(account, "the account was removed; its chain record is still there")
    return {account: problem for account, problem in problems.items() if only in (None, account, operator.id)}


def _differing(tx: Tx, key: bytes, told: list[tuple[Entry, Heads]], only: str | None) -> dict[str, str]:
    heads = [
        (account, head, entry)
        for entry, found in told
        for account, text in found.heads.items()
        if only in (None, account) and (head := seal.parse_head(text)) is not None
    ]
    there = seal_rows.macs(tx, ((account, head.number) for account, head, _ in heads))
    anchors = seal_rows.anchors(tx, (account for account, _, _ in heads))
    existing = seal_rows.accounts_given(tx, (account for account, _, _ in heads))
    problems: dict[str, str] = {}
    for account, head, entry in heads:
        if account in problems:
            continue
        if account not in existing:
            problems[account] = f"the account was removed; entry {entry.name} of the operator's ledger holds its head"
        elif head.number and there.get((account, head.number)) != head.mac:
            anchor = anchors.get(account)
            if anchor is None or not seal.is_pruned(key, account, anchor, head):
                problems[account] = (
                    f"seal {head.number} is missing or is not the one in the operator's ledger (entry {entry.name}): "
                    "the chain was cut off or rewritten"
                )
    return problems


def _lost(tx: Tx, operator: Account, those: set[bytes]) -> bytes | None:
    """The first of these entries that is missing although it must still be kept."""
    kept = timedelta(days=operator.seconds("audit_retention") // 86400)
    recent = [raw_id for raw_id in sorted(those) if ids.made_at(raw_id) > tx.at - min(kept, timedelta(days=30))]
    return next((raw_id for raw_id in recent if entry_rows.load(tx, operator.id, raw_id) is None), None)
