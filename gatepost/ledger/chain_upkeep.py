"""The head and the tree of each ledger: how they begin, how they catch up, and the heads in the operator's ledger."""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from gatepost import accounts
from gatepost.accounts import Account, account_rows
from gatepost.core import ids
from gatepost.ledger import (
    chain,
    chain_rows,
    checkpoint,
    checkpoint_rows,
    entries,
    entry_rows,
    seal,
    seal_rows,
    tree_rows,
)
from gatepost.ledger.chain import BrokenChain, Chain, Recorded
from gatepost.ledger.checkpoint import Checkpoint, Signer
from gatepost.ledger.entries import SERVICE, Entry, Origin
from gatepost.ledger.record import append_entry
from gatepost.ledger.seal import Head
from gatepost.store.pending import Again
from gatepost.store.transaction import HIGHEST, LOWEST, Tx, Unit

T = TypeVar("T")
HEADS = "account.heads.recorded"
MOST_HEADS = 1000  # in one entry
_SEALS = 4  # at a time: a commit of a few milliseconds
_PAGE = 500


class Reader(Protocol):
    def read_now(self, unit: Unit[T]) -> T: ...


# --- how a chain begins


def begin(tx: Tx, key: bytes, account: str) -> None:
    """For a new account, in the commit that makes it."""
    chain_rows.add(tx, key, account, Chain())


def adopt(tx: Tx, key: bytes) -> list[str]:
    """Begin the records of accounts that an earlier release made; return those for which this is refused.

    The operator's ledger names every account that ever had a record: such an account is never adopted again.
    """
    missing = chain_rows.accounts_without(tx)
    if not missing:
        return []
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is not None and operator.id in missing and chain_rows.exists(tx):
        return missing  # the operator's record is the first that is made
    known = _accounts_with_heads(tx, operator) if operator is not None else set()
    for account in sorted(missing, key=lambda each: operator is None or each != operator.id):
        if account not in known and not checkpoint_rows.exists(tx, account):
            _adopt(tx, key, account)
    return [account for account in missing if account in known or checkpoint_rows.exists(tx, account)]


def _adopt(tx: Tx, key: bytes, account: str) -> None:
    anchor = seal_rows.anchor(tx, account)
    pruned = chain.at_anchor(anchor)
    if chain_rows.add(
        tx, key, account, Chain(seal_rows.last(tx, account) or Head(0, seal.START), pruned.number, pruned.tree)
    ):
        tree_rows.save_pruned(tx, key, account, pruned)


def _accounts_with_heads(tx: Tx, operator: Account) -> set[str]:
    found: set[str] = set()
    after = LOWEST
    while page := entry_rows.oldest(tx, operator.id, after, HIGHEST, _PAGE):
        for entry in page:
            if entry.type == HEADS:
                found.update(heads_in(entry).heads)
        after = page[-1].id
    return found


# --- going on from it


def current(tx: Tx, key: bytes, account: str) -> Chain:
    """The chain as it is. Genuine seals that an earlier release added after its record are taken in."""
    found = chain_rows.load(tx, key, account)
    if found is None:
        raise BrokenChain(f"{account} has no chain record: it was removed, or the account was made by another release")
    last = seal_rows.last(tx, account)
    while last is not None and last.number > found.head.number:
        page = seal_rows.page(tx, account, found.head.number, _PAGE)
        for each in page:
            right = seal.mac(key, account, found.head.mac, each.number, each.at, each.leaves)
            if each.number != found.head.number + 1 or right != each.mac:
                raise BrokenChain(f"seal {each.number} of {account} does not follow the last one that the service made")
            linked = chain.linked(each.leaves)
            found = found._replace(
                head=Head(each.number, each.mac), linked=max(found.linked, linked.number if linked else 0)
            )
        if not page:
            break
    return found


def operator_head(tx: Tx, key: bytes, account: str) -> Head | None:
    """The operator's head, for the seals of other accounts to name."""
    operator = account_rows.load_named(tx, accounts.OPERATOR)
    if operator is None or operator.id == account:
        return None
    try:
        found = chain_rows.load(tx, key, operator.id)
    except BrokenChain:
        return None
    return found.head if found else None


def grow_some(tx: Tx, key: bytes, account: str) -> bool:
    """Add a slice of seals to a tree that is behind; False when nothing is left to do."""
    stored = chain_rows.load(tx, key, account)
    if stored is None or stored.grown >= stored.head.number:
        return False
    anchor = seal_rows.anchor(tx, account)
    before = seal_rows.macs(tx, [(account, stored.grown)]).get((account, stored.grown))
    if before is None:
        before = seal.START if not stored.grown else anchor.mac if anchor and anchor.number == stored.grown else None
    tree, grown = stored.tree, stored.grown
    for each in seal_rows.page(tx, account, grown, _SEALS):
        right = seal.mac(key, account, before, each.number, each.at, each.leaves) if before is not None else None
        if each.number != grown + 1 or right != each.mac:
            break
        first = tree.size
        tree, nodes = chain.grow(key, tree, each)
        tree_rows.add_seal(tx, account, each.number, first, nodes)
        grown, before = each.number, each.mac
    if grown == stored.grown:
        raise BrokenChain(f"seal {grown + 1} of {account} is missing or was altered: the tree cannot grow over it")
    if not chain_rows.move(tx, key, account, stored, stored._replace(grown=grown, tree=tree)):
        raise Again("the chain moved on meanwhile")
    return grown < stored.head.number


# --- heads in the operator's ledger


class Heads(NamedTuple):
    """What an entry about heads says: the head of each account, and the entry of this kind before it."""

    heads: dict[str, str]
    previous: str | None


def heads_in(entry: Entry) -> Heads:
    found = msgspec.json.decode(entry.data or "{}")
    return Heads(found.get("heads", {}), found.get("previous"))


class Due(NamedTuple):
    """Chains that have moved since they were recorded, with their signed checkpoints."""

    chains: list[tuple[str, Chain, str]]
    next: str  # where to go on; empty at the end


def due(tx: Tx, key: bytes, signer: Signer, base_url: str, after: str = "") -> Due:
    """A page of what is to be recorded. It signs, so it is done in a reading unit."""
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
    return Due(found, page[-1].account if len(page) == MOST_HEADS else "")


def record_heads(tx: Tx, key: bytes, moved: Iterable[tuple[str, Chain, str]]) -> int:
    """One entry in the operator's ledger with all these heads; how many there were.

    The operator's own head is not among them: the entry itself moves it. Other accounts' seals name it.
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
    """Compare every head in the operator's ledger with the chains as they are; what is wrong, by account.

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
    """The first of these entries that is not there before its time."""
    kept = timedelta(days=operator.seconds("audit_retention") // 86400)
    recent = [raw_id for raw_id in sorted(those) if ids.made_at(raw_id) > tx.at - min(kept, timedelta(days=30))]
    return next((raw_id for raw_id in recent if entry_rows.load(tx, operator.id, raw_id) is None), None)
