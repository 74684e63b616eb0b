"""The keys of the service itself, which are stored encrypted with the master key."""

from gatepost.accounts import account_rows
from gatepost.core.errors import BadSetting, NoStore
from gatepost.core.secrets import SERVER_KEYS, Box, ServerKeys, WrongKey, random_bytes
from gatepost.store.transaction import Tx


def open_keys(tx: Tx, master: Box, *, make: bool) -> ServerKeys:
    """The server keys, decrypted with the master key. With `make`, an empty store gets new ones.

    A key that is missing from a store in use is not created again: with a new seal key, history could be rewritten.
    """
    if make and not load(tx) and not account_rows.page(tx, "", 1):
        for name in SERVER_KEYS:
            add(tx, name, master.encrypt(random_bytes(32), f"server key {name}"))
    stored = load(tx)
    missing = sorted(set(SERVER_KEYS) - set(stored))
    if missing and (stored or account_rows.page(tx, "", 1)):
        raise BadSetting(f"the server key {missing[0]} was removed from the store; restore it from a backup")
    if missing:
        raise NoStore("the store has no keys yet; start the service once, or run: gatepost store migrate")
    try:
        return ServerKeys({name: master.decrypt(wrapped, f"server key {name}") for name, wrapped in stored.items()})
    except WrongKey as error:
        raise BadSetting(
            f"the master key does not open this store ({error}); use the key that the store was encrypted with"
        ) from None


def rewrap(tx: Tx, master: Box) -> int:
    """Encrypt the server keys with the first master key. Returns how many were encrypted with another."""
    count = 0
    for name, wrapped in load(tx).items():
        if master.key_id_of(wrapped) != master.current_key_id:
            update(tx, name, master.encrypt(master.decrypt(wrapped, f"server key {name}"), f"server key {name}"))
            count += 1
    return count


def load(tx: Tx) -> dict[str, bytes]:
    """The encrypted server keys by name."""
    return dict(tx.rows("server_keys"))


def add(tx: Tx, name: str, wrapped: bytes) -> None:
    """Insert an encrypted server key."""
    tx.write("insert_server_key", name=name, wrapped=wrapped)


def update(tx: Tx, name: str, wrapped: bytes) -> None:
    """Replace an encrypted server key."""
    tx.write("update_server_key", name=name, wrapped=wrapped)
