"""The rows of the keys of the service itself, wrapped with the master key."""

from gatepost.store.transaction import Tx


def load(tx: Tx) -> dict[str, bytes]:
    return dict(tx.rows("server_keys"))


def add(tx: Tx, name: str, wrapped: bytes) -> None:
    tx.write("insert_server_key", name=name, wrapped=wrapped)


def update(tx: Tx, name: str, wrapped: bytes) -> None:
    tx.write("update_server_key", name=name, wrapped=wrapped)
