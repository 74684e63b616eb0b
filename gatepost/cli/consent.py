"""`gatepost consent`: what people allowed clients."""

from itertools import islice

import click

from gatepost.accounts import lookup
from gatepost.cli import show
from gatepost.cli.options import account_named, account_option, filter_option, limit_option, with_store
from gatepost.core import ids
from gatepost.core.errors import NotFound
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.oauth import consent_rows, consents, revocation, token_admin
from gatepost.oauth.token_admin import TokenSelector
from gatepost.run.app import Runtime
from gatepost.store.transaction import Tx


@click.group()
def consent() -> None:
    """Show and revoke consents: what people allowed clients."""


@consent.command("list")
@account_option
@filter_option("--client", default="", metavar="CLIENT_ID", help="Only consents for this client.")
@filter_option("--subject", default="", metavar="SUB", help="Only consents of this person, by the `sub` in tokens.")
@click.option("--all", "include_ended", is_flag=True, help="Include consents that have ended.")
@limit_option(100, "consents")
@with_store
def list_consents(
    runtime: Runtime, name: str, client: str, subject: str, include_ended: bool, limit: int, as_json: bool
) -> None:
    """List the consents of an account, oldest first. Claims about the person are not shown."""
    account = account_named(runtime, name)
    for selector in (TokenSelector(client=client), TokenSelector(subject=subject)):
        if any(selector):
            token_admin.account_of(runtime.store, selector, account.id)
    matching = (
        consents.render(consent)
        for consent in consent_rows.every(runtime.store, account.id, runtime.service.keys.data)
        if client in ("", consent.client)
        and subject in ("", consent.subject)
        and (include_ended or consent.ended_at is None)
    )
    columns = {
        "id": "id", "sub": "sub", "client": "client_id", "scope": "scope", "given": "given_at",
        "ended": "ended_reason",
    }  # fmt: skip
    show.listing(list(islice(matching, limit)), columns, as_json=as_json)


@consent.command()
@click.argument("consent_id")
@account_option
@with_store
def revoke(runtime: Runtime, consent_id: str, name: str, as_json: bool) -> None:
    """Revoke a consent and all tokens that depend on it.

    Verifiers that only check signatures accept access tokens until they expire.
    """

    def unit(tx: Tx) -> bool:
        account = lookup.named(tx, name)
        box = runtime.service.keys.data
        if not ids.parse("con", consent_id) or not consent_rows.load(tx, account.id, consent_id, box):
            raise NotFound(f"{account.name} has no consent {consent_id}; see `gatepost consent list`")
        return revocation.end_consent(tx, account, consent_id, token_admin.REASON, Origin(OPERATOR))

    ended = runtime.store.run_now(unit)
    text = f"{consent_id} was revoked." if ended else f"{consent_id} had already ended."
    show.message({"id": consent_id, "ended": ended}, text, as_json=as_json)
