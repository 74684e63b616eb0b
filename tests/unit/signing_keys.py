"""Signing keys that cost nothing to make, and a place where changes to keys are kept as a store keeps them."""

from datetime import datetime

from gatepost.core import ids
from gatepost.oauth.signing_keys import GeneratedKey, KeyChange, SigningKey


def generate(alg: str, at: datetime) -> GeneratedKey:
    """As keys.generate, without the numbers: the plan never looks at them."""
    key_id = ids.new("key")
    return GeneratedKey(
        SigningKey(key_id, alg, "announced", {"kid": key_id, "alg": alg}, at), f"private {key_id}".encode()
    )


class Kept:
    """Keys and their private parts by id, in the order they came."""

    def __init__(self) -> None:
        self.keys: dict[str, SigningKey] = {}
        self.private: dict[str, bytes | None] = {}

    def apply(self, changes: list[KeyChange]) -> list[KeyChange]:
        for change in changes:
            if change.private is not None:
                assert change.key.id not in self.keys, "a new key"
                self.private[change.key.id] = change.private
            else:
                assert change.key.id in self.keys, "a known key"
            self.keys[change.key.id] = change.key
            if change.wipe:
                self.private[change.key.id] = None
        return changes

    def listed(self) -> list[SigningKey]:
        return list(self.keys.values())

    def of(self, alg: str, status: str) -> list[SigningKey]:
        return [key for key in self.keys.values() if key.alg == alg and key.status == status]

    def one(self, alg: str, status: str) -> SigningKey:
        (found,) = self.of(alg, status)
        return found
