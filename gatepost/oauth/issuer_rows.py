"""The rows of trusted issuers."""

import msgspec

from gatepost.core import ids
from gatepost.oauth.issuers import Issuer
from gatepost.store.transaction import Tx

_issuer = msgspec.json.Decoder(Issuer)
_encode = msgspec.json.Encoder().encode


def load(tx: Tx, account: str) -> tuple[Issuer, ...]:
    """The issuers that an account trusts, by name."""

    def load_all() -> tuple[Issuer, ...]:
        rows = tx.rows("list_issuers", account=ids.raw(account))
        return tuple(_issuer.decode(row[0]) for row in rows)

    return tx.cached(f"issuers {account}", load_all) or ()


def add(tx: Tx, issuer: Issuer) -> bool:
    """Store an issuer. False if the name is taken."""
    document = _encode(issuer).decode()
    added = tx.write("put_issuer", account=ids.raw(issuer.account), name=issuer.name, document=document)
    tx.change(f"issuers {issuer.account}")
    return bool(added)


def remove(tx: Tx, account: str, name: str) -> bool:
    """Delete an issuer. False if there is none."""
    tx.change(f"issuers {account}")
    return bool(tx.write("delete_issuer", account=ids.raw(account), name=name))
