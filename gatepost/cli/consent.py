"""`gatepost consent`: what people allowed clients."""

from itertools import islice

import click

from gatepost.accounts import administration
from gatepost.cli import show
from gatepost.cli.options import account_option, json_option, with_store
from gatepost.core import ids
from gatepost.core.errors import BadSetting
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.oauth import consent_rows, consents, revocation, token_admin
from gatepost.oauth.token_admin import Which
from gatepost.run.app import Opened
from gatepost.store.transaction import Tx


@click.group()
def consent() -> None:
    """See what people allowed clients, and end it."""


@consent.command("list")
@account_option
@click.option("--client", default="", metavar="CLIENT_ID", help="Only of this client.")
@click.option("--subject", default="", metavar="SUB", help="Only of this person, as `sub` in tokens.")
@click.option("--all", "ended_too", is_flag=True, help="Those that have ended too.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many at most.")
@with_store
@json_option
def list_consents(
    opened: Opened, name: str, client: str, subject: str, ended_too: bool, limit: int, as_json: bool
) -> None:
    """The consents of an account, oldest first. What was said about the person is not shown."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    for which in (Which(client=client), Which(subject=subject)):
        if any(which):
            token_admin.account_of(opened.store, which, account.id)
    wanted = (
        consents.shown(each)
        for each in token_admin.consents_of(opened.store, opened.service, account)
        if client in ("", each.client) and subject in ("", each.subject) and (ended_too or each.ended_at is None)
    )
    found = list(islice(wanted, limit))
    if as_json:
        show.document(found)
        return
    rows = [(c["id"], c["sub"], c["client_id"], c["scope"], c["given_at"], c["ended_reason"]) for c in found]
    show.table(("id", "sub", "client", "scope", "given", "ended"), rows)


@consent.command()
@click.argument("consent_id")
@account_option
@with_store
@json_option
def revoke(opened: Opened, consent_id: str, name: str, as_json: bool) -> None:
    """End a consent and what rests on it. Who only checks signatures sees access tokens until they expire."""

    def unit(tx: Tx) -> bool:
        account = administration.named(tx, name)
        known = ids.parse("con", consent_id) and consent_rows.load(tx, account.id, consent_id, opened.service.keys.data)
        if not known:
            raise BadSetting(f"there is no consent {consent_id} in {account.name}; `gatepost consent list` shows them")
        return revocation.end_consent(tx, account, consent_id, token_admin.REASON, Origin(OPERATOR))

    ended = opened.store.run_now(unit)
    if as_json:
        show.document({"id": consent_id, "ended": ended})
    else:
        print(f"{consent_id} ended." if ended else f"{consent_id} had ended before.")
