"""`gatepost token`: request a token, show issued tokens and whether they are still valid, and revoke them."""

from collections.abc import Callable
from typing import Any

import click

from gatepost.cli import profiles, show
from gatepost.cli.options import json_option, limit_option, remote_options, remote_values, with_store
from gatepost.cli.remote import RemoteOperations
from gatepost.core.errors import BadSetting
from gatepost.oauth import token_admin
from gatepost.oauth.token_admin import TokenSelector
from gatepost.run.app import Runtime


@click.group()
def token() -> None:
    """Request a token, and show and revoke issued tokens: by their id, client, person or family."""


@token.command()
@click.option("--scope", "scopes", multiple=True, required=True, help="A scope of the token; repeatable.")
@click.option("--resource", default="", metavar="URI", help="The audience, if the scopes have several.")
@click.option("--explain", is_flag=True, help="Issue no token, and show each rule up to the one that decides.")
@remote_options
@click.option("-q", "--quiet", is_flag=True, help="Print only the token.")
@json_option
def get(
    scopes: tuple[str, ...], resource: str, explain: bool, remote: str | None, profile: str | None, quiet: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Request an access token with a client's credentials, from the service that --remote or --profile names."""
    client = RemoteOperations(profiles.load(*remote_values(remote, profile)))
    response = client.request_token(" ".join(scopes), resource, explain=explain)
    if explain and not as_json:
        show.record({name: value for name, value in response.items() if name != "rules"})
        print()
        show.listing(response["rules"], show.headings("rule", "held"))
    elif quiet and not explain:
        print(response["access_token"])
    else:
        show.record(response, as_json=as_json)


def _selector_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--account",
            default="",
            metavar="NAME",
            envvar="GATEPOST_ACCOUNT",
            help="The account. The default is GATEPOST_ACCOUNT, or else it is searched for.",
        ),
        click.option("--family", default="", metavar="FAM", help="Tokens of a refresh token and its descendants."),
        click.option("--subject", default="", metavar="SUB", help="Tokens about a person, by the `sub` in tokens."),
        click.option("--client", default="", metavar="CLIENT_ID", help="Tokens of a client."),
        click.option("--id", "token_id", default="", metavar="TOK", help="One token, by its jti."),
    ):
        function = option(function)
    return function


def _selector(**criteria: str) -> TokenSelector:
    if sum(bool(value) for value in criteria.values()) != 1:
        raise BadSetting("select tokens with one of --id, --client, --subject or --family")
    return TokenSelector(**criteria)


@token.command("show")
@_selector_options
@limit_option(50, "tokens")
@with_store
def show_tokens(
    runtime: Runtime, token_id: str, client: str, subject: str, family: str, account: str, limit: int, as_json: bool
) -> None:
    """Show access tokens from the ledger, newest first, and whether each is still valid.

    Tokens of the last day are shown. With --id, any token is shown.
    """
    selector = _selector(id=token_id, client=client, subject=subject, family=family)
    owner = token_admin.account_of(runtime.store, selector, account)
    tokens = list(token_admin.find(runtime.store, runtime.service, owner, selector, limit))
    if selector.id and not as_json:
        show.record(tokens[0])
        return
    columns = {
        "id": "id", "state": "state", "client": "client_id", "grant": "grant_type", "scope": "scope",
        "expires": "expires_at",
    }  # fmt: skip
    show.listing(tokens, columns, as_json=as_json)


@token.command()
@_selector_options
@with_store
def revoke(
    runtime: Runtime, token_id: str, client: str, subject: str, family: str, account: str, as_json: bool
) -> None:
    """Revoke tokens. Gatepost refuses them at once, and introspection reports them as inactive.

    Verifiers that only check signatures accept access tokens until they expire.
    """
    selector = _selector(id=token_id, client=client, subject=subject, family=family)
    owner = token_admin.account_of(runtime.store, selector, account)
    ended = token_admin.revoke(runtime.store, runtime.service, owner, selector)
    counts = ", ".join(f"{count} {_WORDS[name][count != 1]}" for name, count in ended._asdict().items() if count)
    text = f"Revoked: {counts}." if counts else "There was nothing to revoke."
    show.message(ended._asdict(), text, as_json=as_json)


_WORDS = {
    "consents": ("consent with all its tokens", "consents with all their tokens"),
    "families": ("family with its access tokens", "families with their access tokens"),
    "tokens": ("access token", "access tokens"),
}
