"""`gatepost token`: what was issued, whether it still works, and ending it."""

from collections.abc import Callable
from typing import Any

import click

from gatepost.cli import show
from gatepost.cli.options import json_option, with_store
from gatepost.core.errors import BadSetting
from gatepost.oauth import token_admin
from gatepost.oauth.token_admin import Which
from gatepost.run.app import Opened


@click.group()
def token() -> None:
    """See and revoke tokens that were issued: by their id, client, person or family."""


def _which(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--account", default="", metavar="NAME", help="Where to look; by default it is found."),
        click.option("--family", default="", metavar="FAM", help="Those of a refresh token and its descendants."),
        click.option("--subject", default="", metavar="SUB", help="Those about a person, as `sub` in tokens."),
        click.option("--client", default="", metavar="CLIENT_ID", help="Those of a client."),
        click.option("--id", "token_id", default="", metavar="TOK", help="One token, by its jti."),
    ):
        function = option(function)
    return function


def _meant(**given: str) -> Which:
    if sum(bool(value) for value in given.values()) != 1:
        raise BadSetting("say which: one of --id, --client, --subject or --family")
    return Which(**given)


@token.command("show")
@_which
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@with_store
@json_option
def show_tokens(
    opened: Opened, token_id: str, client: str, subject: str, family: str, account: str, limit: int, as_json: bool
) -> None:
    """Access tokens as the ledger has them, newest first, and whether each still works. A day back, but by id any."""
    which = _meant(id=token_id, client=client, subject=subject, family=family)
    where = token_admin.account_of(opened.store, which, account)
    found = list(token_admin.found(opened.store, opened.service, where, which, limit))
    if as_json:
        show.document(found)
    elif which.id:
        show.record(found[0])
    else:
        rows = [(t["id"], t["state"], t["client_id"], t["grant_type"], t["scope"], t["expires_at"]) for t in found]
        show.table(("id", "state", "client", "grant", "scope", "expires"), rows)


@token.command()
@_which
@with_store
@json_option
def revoke(opened: Opened, token_id: str, client: str, subject: str, family: str, account: str, as_json: bool) -> None:
    """End tokens at once, here and in introspection. Who only checks signatures sees them until they expire."""
    which = _meant(id=token_id, client=client, subject=subject, family=family)
    where = token_admin.account_of(opened.store, which, account)
    ended = token_admin.revoke(opened.store, opened.service, where, which)
    if as_json:
        show.document(ended._asdict())
        return
    told = ", ".join(f"{count} {_WORDS[name][count != 1]}" for name, count in ended._asdict().items() if count)
    print(f"Ended: {told}." if told else "Nothing was left to end.")


_WORDS = {
    "consents": ("consent with all that rests on it", "consents with all that rests on them"),
    "families": ("family with its access tokens", "families with their access tokens"),
    "tokens": ("access token", "access tokens"),
}
