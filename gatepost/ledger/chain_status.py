"""The status of an account's chain, at a cost that does not depend on its length: its end and its last checkpoint.

`verification` checks all of it.
"""

from typing import Any

from gatepost.core import clock, ids
from gatepost.ledger import chain_rows, checkpoint_rows, seal, seal_rows
from gatepost.ledger.chain import BrokenChain, Chain, RecordedHead
from gatepost.ledger.seal import Anchor, Head, Seal
from gatepost.store.transaction import LOWEST, Tx

MAX_COUNTED = 1000  # entries that wait for a seal


def render(tx: Tx, key: bytes, account: str) -> dict[str, Any]:
    """Up to where the ledger is sealed, what is wrong with its end, and its last checkpoint."""
    chain = chain_rows.load_many(tx, key, [account]).get(account)
    known = chain if isinstance(chain, Chain) else None
    anchor, waiting = seal_rows.anchor(tx, account), seal_rows.unsealed(tx, [account], MAX_COUNTED)[account]
    last_two = seal_rows.page(tx, account, max(known.head.number - 2, 0), 2) if known else []
    sealed_at = next((each.at for each in last_two if known and each.number == known.head.number), None)
    return {
        "problem": problem(key, account, chain, last_two, anchor) or None,
        "head": str(known.head) if known else None,
        "seals": known.head.number if known else None,
        "entries": known.tree.size if known else None,
        "sealed_at": clock.rfc3339(clock.from_milliseconds(sealed_at)) if sealed_at else None,
        "pruned_seals": anchor.number if anchor else 0,
        "unsealed": len(waiting),
        "counted_to": MAX_COUNTED,
        "unsealed_since": clock.rfc3339(ids.made_at(waiting[0][1])) if waiting else None,
        "checkpoint": _render_checkpoint(checkpoint_rows.load(tx, key, account)),
    }


def problem(
    key: bytes, account: str, chain: Chain | BrokenChain | None, last_two: list[Seal], anchor: Anchor | None
) -> str:  # fmt: skip
    """What is wrong with the record of the chain or with its last seal, or ""."""
    if not isinstance(chain, Chain):
        return record_problem(chain)
    number = chain.head.number
    if not number or (anchor and seal.is_pruned(key, account, anchor, chain.head)):
        return ""
    macs = (
        {0: seal.START} | ({anchor.number: anchor.mac} if anchor else {}) | {each.number: each.mac for each in last_two}
    )
    last = next((each for each in last_two if each.number == number), None)
    previous = macs.get(number - 1)
    if last is None or previous is None:
        return f"seal {number} or the one before it is missing"
    if last.mac != chain.head.mac or not seal.follows(key, account, Head(number - 1, previous), last):
        return f"seal {number}, the last one, was altered"
    return ""


def record_problem(chain: Chain | BrokenChain | None) -> str:
    """What is wrong with the record of a chain alone, or ""."""
    return "" if isinstance(chain, Chain) else str(chain or "the account has no chain record")


def _render_checkpoint(recorded: RecordedHead | None) -> dict[str, Any] | None:
    if recorded is None or not recorded.note:
        return None
    has_entry = recorded.entry != LOWEST
    return {
        "size": recorded.size,
        "note": recorded.note,
        "event": ids.text("evt", recorded.entry) if has_entry else None,
        "recorded_at": clock.rfc3339(ids.made_at(recorded.entry)) if has_entry else None,
    }
