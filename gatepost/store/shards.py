"""A distributed store: which tables Citus distributes, which shard and database node an account is on, what is down.

Citus hashes the account, as PostgreSQL does for a hash index. Computed here too, it tells which units can share a
commit without a question to the database. If shards were moved meanwhile, a commit only costs more.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gatepost.core.errors import Unavailable

# The tables that are distributed by their column `account`. All others stay on the coordinator.
BY_ACCOUNT = (
    "entries", "unsealed", "seals", "anchors", "prunings", "chains", "tree_seals", "tree_nodes", "pruned_trees",
    "checkpoints", "answers", "published", "endpoints", "subscriptions", "health", "deliveries", "queue", "attempts",
    "tallies", "endpoint_tally_log", "endpoint_tallies", "replays", "delivery_prunings", "secret_uses", "pushed",
    "interactions", "consents", "codes", "families", "revoked",
)  # fmt: skip
# A table of the coordinator that Citus knows. To Citus a write there is one on a node of its own, so a transaction
# that writes there and on another node commits in two phases. It does not notice other writes on the coordinator.
TWO_PHASE_TABLE = "gatepost_two_phase"

_MOST_REMEMBERED = 100_000  # accounts
_MASK = 0xFFFFFFFF


class Node(NamedTuple):
    """A database node: a PostgreSQL server that has shards."""

    group: int
    host: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


class _Map(NamedTuple):
    """The first hash value of each shard, in order, and its node."""

    starts: list[int]
    nodes: list[Node]
    remembered: dict[bytes, int]  # account → shard

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, str, int]]) -> "_Map":
        listed = list(rows)
        return cls([row[0] for row in listed], [Node(*row[1:]) for row in listed], {})

    def shard(self, account: bytes) -> int:
        number = self.remembered.get(account)
        if number is None:
            if len(self.remembered) >= _MOST_REMEMBERED:
                self.remembered.clear()
            number = self.remembered[account] = bisect_right(self.starts, hash_bytes(account)) - 1
        return number


class Shards:
    """The shards of a store by the first hash value of each, and the nodes that cannot be reached."""

    def __init__(self, rows: Iterable[tuple[int, int, str, int]]) -> None:
        self._map = _Map.of(rows)  # replaced as a whole, since several threads read it
        self.down: frozenset[Node] = frozenset()
        self.check: Callable[[], None] = lambda: None  # finds out which nodes are down; set by what can

    def unreachable(self) -> list[str]:
        """The names of the nodes that cannot be reached now."""
        self.check()
        return sorted(node.name for node in self.down)

    @property
    def nodes(self) -> list[Node]:
        return sorted(set(self._map.nodes))

    def shard(self, account: bytes) -> int:
        """The number of the shard, which is the same in all tables."""
        return self._map.shard(account)

    def node(self, account: bytes) -> Node:
        places = self._map
        return places.nodes[places.shard(account)]

    def is_reachable(self, account: bytes) -> bool:
        return not self.down or self.node(account) not in self.down

    def require(self, account: bytes) -> None:
        """Raise `Unavailable` at once if the node of an account is down, instead of after a time limit."""
        if not self.is_reachable(account):
            raise Unavailable(f"the database node {self.node(account).name}, which has this account, cannot be reached")

    def update(self, rows: Iterable[tuple[int, int, str, int]], down: Iterable[Node]) -> None:
        """Set where the shards are now, and which nodes are down."""
        self._map, self.down = _Map.of(rows), frozenset(down)


def hash_bytes(key: bytes) -> int:
    """PostgreSQL's hash of a `bytea` or `text`: lookup3 by Bob Jenkins, as a signed number of 32 bits."""
    a = b = c = (0x9E3779B9 + len(key) + 3923095) & _MASK
    start = 0
    while len(key) - start >= 12:
        a, b, c = (
            (state + int.from_bytes(key[place : place + 4], "little")) & _MASK
            for state, place in ((a, start), (b, start + 4), (c, start + 8))
        )
        for first, second, third in ((4, 6, 8), (16, 19, 4)):
            a = (a - c & _MASK) ^ _rotated(c, first)
            c = c + b & _MASK
            b = (b - a & _MASK) ^ _rotated(a, second)
            a = a + c & _MASK
            c = (c - b & _MASK) ^ _rotated(b, third)
            b = b + a & _MASK
        start += 12
    a = a + int.from_bytes(key[start : start + 4], "little") & _MASK
    b = b + int.from_bytes(key[start + 4 : start + 8], "little") & _MASK
    c = c + (int.from_bytes(key[start + 8 : start + 11], "little") << 8) & _MASK  # its lowest byte is for the length
    c = (c ^ b) - _rotated(b, 14) & _MASK
    a = (a ^ c) - _rotated(c, 11) & _MASK
    b = (b ^ a) - _rotated(a, 25) & _MASK
    c = (c ^ b) - _rotated(b, 16) & _MASK
    a = (a ^ c) - _rotated(c, 4) & _MASK
    b = (b ^ a) - _rotated(a, 14) & _MASK
    c = (c ^ b) - _rotated(b, 24) & _MASK
    return c - (1 << 32) if c >> 31 else c


def _rotated(value: int, places: int) -> int:
    return (value << places | value >> 32 - places) & _MASK
