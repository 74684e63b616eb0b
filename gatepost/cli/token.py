"""`gatepost token`: issued tokens, whether they are still valid, and their revocation."""

from collections.abc import Callable
from typing import Any

import click

from gatepost.cli import show
from gatepost.cli.options import with_store
from gatepost.core.errors import BadSetting
from gatepost.oauth import token_admin
from gatepost.oauth.token_admin import TokenSelector
from gatepost.run.app import Runtime


@click.group()
def token() -> None:
    """Show and revoke issued tokens: by their id, client, person or family."""


def _selection(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--account", default="", metavar="NAME", help="The account; by default it is searched for."),
        click.option("--family", default="", metavar="FAM", help="Tokens of a refresh token and its descendants."),
        click.option("--subject", default="", metavar="SUB", help="Tokens about a person, by the `sub` in tokens."),
        click.option("--client", default="", metavar="CLIENT_ID", help="Tokens of a client."),
        click.option("--id", "token_id", default="", metavar="TOK", help="One token, by its jti."),
    ):
        function = option(function)
    return function


def _which(**given: str) -> TokenSelector:
    if sum(bool(value) for value in given.values()) != 1:
        raise BadSetting("select tokens with one of --id, --client, --subject or --family")
    return TokenSelector(**given)


@token.command("show")
@_selection
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of tokens.")
@with_store
def show_tokens(
    runtime: Runtime, token_id: str, client: str, subject: str, family: str, account: str, limit: int, as_json: bool
) -> None:
    """Show access tokens from the ledger, newest first, and whether each is still valid.

    Tokens of the last day are shown. With --id, any token is shown.
    """
    which = _which(id=token_id, client=client, subject=subject, family=family)
    where = token_admin.account_of(runtime.store, which, account)
    tokens = list(token_admin.find(runtime.store, runtime.service, where, which, limit))
    if which.id and not as_json:
        show.record(tokens[0])
        return
    columns = {
        "id": "id", "state": "state", "client": "client_id", "grant": "grant_type", "scope": "scope",
        "expires": "expires_at",
    }  # fmt: skip
    show.listing(tokens, columns, as_json=as_json)


@token.command()
@_selection
@with_store
def revoke(
    runtime: Runtime, token_id: str, client: str, subject: str, family: str, account: str, as_json: bool
) -> None:
    """Revoke tokens. Gatepost refuses them at once, and introspection reports them as inactive.

    Verifiers that only check signatures accept access tokens until they expire.
    """
    which = _which(id=token_id, client=client, subject=subject, family=family)
    where = token_admin.account_of(runtime.store, which, account)
    ended = token_admin.revoke(runtime.store, runtime.service, where, which)
    if as_json:
        show.document(ended._asdict())
        return
    counts = ", ".join(f"{count} {_WORDS[name][count != 1]}" for name, count in ended._asdict().items() if count)
    print(f"Revoked: {counts}." if counts else "There was nothing to revoke.")


_WORDS = {
    "consents": ("consent with all its tokens", "consents with all their tokens"),
    "families": ("family with its access tokens", "families with their access tokens"),
    "tokens": ("access token", "access tokens"),
}
