"""Finding entries that the service did not write: every row is compared with the seals. A check returns a problem."""

from gatepost.core import ids
from gatepost.ledger import chain, entry_rows, seal, seal_rows
from gatepost.store.interface import Reader
from gatepost.store.transaction import LOWEST

_IDS = 5000
_SEALS = 20
_NEVER_SEALED = "was never sealed: it did not come through the service"


def check_ids(store: Reader, account: str) -> str:
    """Check that each entry has an id that can be sealed, and that each row in `unsealed` has an entry."""
    found = store.read_now(lambda tx: entry_rows.invalid_rows(tx, account))
    if found.malformed is not None:
        return f"entry {_name(found.malformed)} {_NEVER_SEALED}"
    if found.lost is not None:
        return f"entry {_name(found.lost)} was removed before it was sealed"
    return ""


def find(store: Reader, account: str) -> str:
    """Find an entry that is neither sealed nor waiting for a seal.

    Entries are read in the order of their ids, which is nearly the order of the seals. So few ids are in memory at a
    time. It is not enough to count: the number of entries does not match the seals while the service prunes.
    """
    sealed: set[bytes] = set()  # ids in the seals so far, but no ids before the current page
    last_seal, after = 0, LOWEST
    while page := store.read_now(lambda tx, after=after: entry_rows.sealing_page(tx, account, after, _IDS)):  # type: ignore[misc]
        for raw_id, is_waiting in page:
            while not is_waiting and raw_id not in sealed:
                seals = store.read_now(lambda tx, last=last_seal: seal_rows.page(tx, account, last, _SEALS))  # type: ignore[misc]
                if not seals:
                    break
                sealed.update(leaf.id for stored in seals for leaf in chain.entry_leaves(stored.leaves))
                last_seal = seals[-1].number
            else:
                continue
            # If it was pruned in the meantime, its seal may have been pruned too.
            if store.read_now(lambda tx, raw_id=raw_id: entry_rows.load(tx, account, raw_id)):  # type: ignore[misc]
                return f"entry {_name(raw_id)} {_NEVER_SEALED}"
        after = page[-1][0]
        sealed = {raw_id for raw_id in sealed if raw_id > after}
    return ""


def _name(raw_id: object) -> str:
    """The id as text. An id that no entry can have is shown as it is stored."""
    if isinstance(raw_id, bytes):
        return ids.text("evt", raw_id) if seal.is_entry_id(raw_id) else f"with the id x'{raw_id.hex()}'"
    return f"with the id {raw_id!r}"
