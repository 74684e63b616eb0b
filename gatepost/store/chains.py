"""What may be asked of storage about chains, trees and checkpoints. A record with a wrong proof is never returned."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from gatepost.core import ids
from gatepost.ledger import chain, merkle
from gatepost.ledger.chain import BrokenChain, Chain, PrunedTree, Recorded
from gatepost.ledger.merkle import Node, Tree
from gatepost.ledger.seal import Anchor, Head


class Connection(Protocol):
    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Changed(NamedTuple):
    """A chain beside what was last recorded of it; None for a record whose proof is wrong."""

    account: str
    chain: Chain | None
    recorded: Recorded | None


class Chains:
    """One unit's view of these tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def chain(self, key: bytes, account: str) -> Chain | None:
        """None if there is no record. One that was altered is refused."""
        rows = self._connection.rows("chain", {"account": ids.raw(account)})
        if not rows:
            return None
        found = _chain(key, account, rows[0])
        if found is None:
            raise BrokenChain(f"the chain record of {account} was altered")
        return found

    def begin(self, key: bytes, account: str, begun: Chain) -> bool:
        """False if the account has a record already."""
        return bool(self._connection.write("insert_chain", _parameters(key, account, begun)))

    def move(self, key: bytes, account: str, before: Chain, after: Chain) -> bool:
        """False if somebody else moved it first."""
        parameters = _parameters(key, account, after) | {"before": chain.chain_proof(key, account, before)}
        return bool(self._connection.write("move_chain", parameters))

    def behind(self, limit: int) -> list[str]:
        """Accounts whose tree lacks seals."""
        return [ids.text("acc", row[0]) for row in self._connection.rows("chains_behind", {"limit": limit})]

    def missing(self) -> list[str]:
        """Accounts without a record."""
        return [ids.text("acc", row[0]) for row in self._connection.rows("accounts_without_chain", {})]

    def orphans(self) -> list[str]:
        """Records without an account."""
        return [ids.text("acc", row[0]) for row in self._connection.rows("chains_without_account", {})]

    def any(self) -> bool:
        return bool(self._connection.rows("any_chain", {}))

    # --- the tree

    def put_tree(self, account: str, number: int, first: int, nodes: Iterable[Node]) -> None:
        whose = ids.raw(account)
        self._connection.write("insert_tree_seal", {"account": whose, "number": number, "first": first})
        rows = [(whose, *node) for node in nodes]
        if rows:
            self._connection.write_given("insert_tree_nodes", rows)

    def first_leaf(self, account: str, number: int) -> int | None:
        rows = self._connection.rows("tree_seal", {"account": ids.raw(account), "number": number})
        return int(rows[0][0]) if rows else None

    def seal_with(self, account: str, leaf: int) -> tuple[int, int] | None:
        """The seal that holds this leaf, and its first leaf."""
        rows = self._connection.rows("tree_seal_with", {"account": ids.raw(account), "leaf": leaf})
        return (rows[0][0], rows[0][1]) if rows else None

    def node(self, account: str, level: int, position: int) -> bytes | None:
        parameters = {"account": ids.raw(account), "level": level, "position": position}
        rows = self._connection.rows("tree_node", parameters)
        return rows[0][0] if rows else None

    def nodes_like(self, account: str, nodes: Iterable[Node]) -> dict[tuple[int, int], bytes]:
        """What is stored where these are."""
        asked = [(ids.raw(account), node.level, node.position) for node in nodes]
        rows = self._connection.rows_given("tree_nodes_given", asked) if asked else []
        return {(level, position): hash_ for level, position, hash_ in rows}

    def pruned_tree(self, key: bytes, account: str, anchor: Anchor | None) -> PrunedTree | None:
        """The tree at the anchor; None if it is not known."""
        rows = self._connection.rows("pruned_tree", {"account": ids.raw(account)})
        if not rows:
            return PrunedTree() if anchor is None else None
        number, size, edge, proof = rows[0]
        tree = merkle.unpack(size, edge)
        found = PrunedTree(number, tree) if tree is not None else None
        if found is None or not chain.same(proof, chain.pruned_proof(key, account, found)):
            return None
        return found if number == (anchor.number if anchor else 0) else None

    def put_pruned_tree(self, key: bytes, account: str, pruned: PrunedTree) -> None:
        parameters = {
            "account": ids.raw(account), "number": pruned.number, "size": pruned.tree.size,
            "edge": pruned.tree.packed(), "proof": chain.pruned_proof(key, account, pruned),
        }  # fmt: skip
        self._connection.write("put_pruned_tree", parameters)
        self._connection.write("delete_tree_seals", {"account": ids.raw(account), "number": pruned.number})

    # --- what was recorded

    def recorded(self, key: bytes, account: str) -> Recorded | None:
        rows = self._connection.rows("checkpoint", {"account": ids.raw(account)})
        return _recorded(key, account, rows[0]) if rows else None

    def has_recorded(self, account: str) -> bool:
        return bool(self._connection.rows("checkpoint", {"account": ids.raw(account)}))

    def put_recorded(self, key: bytes, those: Iterable[tuple[str, Recorded]]) -> None:
        rows = [
            (ids.raw(account), *found, chain.recorded_proof(key, account, found)) for account, found in sorted(those)
        ]
        if rows:
            self._connection.write_given("put_checkpoints", rows)

    def page(self, key: bytes, after: str, limit: int) -> list[Changed]:
        """Chains by account, each with what was recorded of it."""
        asked = {"after": ids.raw(after) if after else b"", "limit": limit}
        found = []
        for row in self._connection.rows("chains_to_record", asked):
            account = ids.text("acc", row[0])
            recorded = _recorded(key, account, row[8:]) if row[8] is not None else None
            found.append(Changed(account, _chain(key, account, row[1:8]), recorded))
        return found

    def notes(self, after: str, limit: int) -> list[tuple[str, int, str]]:
        """Account, size and signed checkpoint."""
        asked = {"after": ids.raw(after) if after else b"", "limit": limit}
        return [
            (ids.text("acc", raw), size, note) for raw, size, note in self._connection.rows("checkpoints_after", asked)
        ]

    # --- for verification

    def seal_macs(self, asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
        rows = sorted({(ids.raw(account), number) for account, number in asked})
        found = self._connection.rows_given("seal_macs_given", rows) if rows else []
        return {(ids.text("acc", raw), number): mac for raw, number, mac in found}

    def anchors(self, accounts: Iterable[str]) -> dict[str, Anchor]:
        rows = sorted({(ids.raw(account),) for account in accounts})
        found = self._connection.rows_given("anchors_given", rows) if rows else []
        return {ids.text("acc", raw): Anchor(*rest) for raw, *rest in found}

    def existing(self, accounts: Iterable[str]) -> set[str]:
        """Which of these accounts there are, past every cache."""
        rows = sorted({(ids.raw(account),) for account in accounts})
        found = self._connection.rows_given("accounts_given", rows) if rows else []
        return {ids.text("acc", raw) for (raw,) in found}

    def first_seal_since(self, account: str, since: int) -> int | None:
        rows = self._connection.rows("first_seal_since", {"account": ids.raw(account), "since": since})
        return int(rows[0][0]) if rows else None

    def marks(self, account: str) -> list[tuple[int, bytes]]:
        """Up to where each retention class was pruned."""
        return [(days, raw_id) for days, raw_id in self._connection.rows("marks", {"account": ids.raw(account)})]


def _chain(key: bytes, account: str, row: tuple[Any, ...]) -> Chain | None:
    number, mac, grown, size, edge, linked, proof = row
    tree = merkle.unpack(size, edge)
    found = Chain(Head(number, mac), grown, tree or Tree(), linked)
    return found if tree is not None and chain.same(proof, chain.chain_proof(key, account, found)) else None


def _recorded(key: bytes, account: str, row: tuple[Any, ...]) -> Recorded | None:
    *fields, proof = row
    found = Recorded(*fields)
    return found if chain.same(proof, chain.recorded_proof(key, account, found)) else None


def _parameters(key: bytes, account: str, found: Chain) -> dict[str, Any]:
    return {
        "account": ids.raw(account), "number": found.head.number, "mac": found.head.mac, "grown": found.grown,
        "size": found.tree.size, "edge": found.tree.packed(), "linked": found.linked,
        "proof": chain.chain_proof(key, account, found),
    }  # fmt: skip
