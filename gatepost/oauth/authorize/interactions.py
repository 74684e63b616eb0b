"""The rows of interactions: authorizations that wait for the login application."""

from datetime import datetime
from typing import NamedTuple

from gatepost.core import clock, ids
from gatepost.core.secrets import Box
from gatepost.store.transaction import Tx


class Interaction(NamedTuple):
    """A row. `request` is an Authorization as JSON; `browser` is the hash of the browser's cookie."""

    account: str
    id: str
    client: str
    browser: bytes
    pushed: bytes | None
    request: bytes
    expires_at: datetime
    done_at: datetime | None = None


def add(tx: Tx, interaction: Interaction, source: str, box: Box, *, first_visit: bool = False) -> None:
    """Store an interaction. `first_visit`: the browser sent no cookie, and gets the one whose hash is `browser`."""
    tx.write(
        "insert_interaction", account=ids.raw(interaction.account), id=ids.raw(interaction.id),
        client=ids.raw(interaction.client), browser=interaction.browser, source=source,
        first_visit=int(first_visit), pushed=interaction.pushed,
        request=box.encrypt(interaction.request, interaction.id),
        expires_at=clock.milliseconds(interaction.expires_at),
    )  # fmt: skip


def evict_of_browser(tx: Tx, account: str, browser: bytes, keep: int) -> int:
    """Delete all but the newest `keep` unfinished interactions of one browser. Returns how many were deleted."""
    return len(tx.write("evict_interactions_of_browser", account=ids.raw(account), browser=browser, keep=keep))


def evict(tx: Tx, account: str, client: str, source: str, keep: int, *, first_visit: bool) -> int:
    """The same for one client and address, either of first visits or of browsers that sent a cookie."""
    return len(
        tx.write(
            "evict_interactions", account=ids.raw(account), client=ids.raw(client), source=source,
            first_visit=int(first_visit), keep=keep,
        )
    )  # fmt: skip


def load(tx: Tx, account: str, interaction: str, box: Box) -> Interaction | None:
    """The interaction, also if it has expired or is finished."""
    raw = ids.parse("int", interaction)
    row = tx.one("interaction", account=ids.raw(account), id=raw) if raw else None
    if row is None:
        return None
    client, browser, pushed, request, expires_at, done_at = row
    return Interaction(
        account, interaction, ids.text("cli", client), browser, pushed, box.decrypt(request, interaction),
        clock.from_milliseconds(expires_at), clock.optional_from_milliseconds(done_at),
    )  # fmt: skip


def finish(tx: Tx, account: str, interaction: str) -> bool:
    """Mark an interaction as finished. True for the first request that does so."""
    return bool(tx.write("finish_interaction", account=ids.raw(account), id=ids.raw(interaction), at=tx.now))


def delete_all(tx: Tx) -> None:
    """Delete all interactions and all pushed requests."""
    tx.write("delete_all_pushed")
    tx.write("delete_all_interactions")
