"""`gatepost issuer`: whose tokens an account's workloads may show to obtain one of ours."""

import click

from gatepost.accounts import administration
from gatepost.cli import show
from gatepost.cli.options import account_option, json_option, with_store
from gatepost.oauth import issuer_admin, issuer_rows
from gatepost.run.app import Opened


@click.group()
def issuer() -> None:
    """Trust an issuer of workload identities: its tokens are exchanged by the jwt-bearer grant."""


@issuer.command()
@click.argument("name")
@click.option("--account", required=True, metavar="NAME", help="Its name or id.")
@click.option("--issuer", "issued_by", required=True, metavar="ISS", help="The `iss` of its tokens.")
@click.option("--jwks-uri", required=True, metavar="URL", help="Where its keys are published.")
@click.option("--match", multiple=True, required=True, metavar="CLAIM=VALUE", help="A claim and its exact value.")
@click.option("--client", required=True, metavar="CLIENT_ID", help="The client that may show its tokens.")
@click.option("--scope", multiple=True, required=True, help="What such a token may obtain.")
@click.option("--once", is_flag=True, help="Accept each of its tokens once, by its `jti`, which is then required.")
@with_store
@json_option
def add(
    opened: Opened, name: str, account: str, issued_by: str, jwks_uri: str, match: tuple[str, ...], client: str,
    scope: tuple[str, ...], once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Trust tokens of an issuer whose claims match, for one client and these scopes."""
    made = opened.store.run_now(
        lambda tx: issuer_admin.add(
            tx, opened.service, administration.named(tx, account), name, issuer=issued_by, jwks_uri=jwks_uri,
            match=list(match), client=client, scope=list(scope), once=once,
        )
    )  # fmt: skip
    (show.document if as_json else show.record)(made.shown())


@issuer.command("list")
@account_option
@with_store
@json_option
def list_issuers(opened: Opened, name: str, as_json: bool) -> None:
    """The issuers that an account trusts, by name."""
    found = opened.store.read_now(lambda tx: issuer_rows.load(tx, administration.named(tx, name).id))
    if as_json:
        show.document([each.shown() for each in found])
        return
    rows = [(each.name, each.issuer, each.match, each.client, " ".join(each.scope)) for each in found]
    show.table(("name", "issuer", "match", "client", "scope"), rows)


@issuer.command("show")
@click.argument("name")
@click.option("--account", required=True, metavar="NAME", help="Its name or id.")
@with_store
@json_option
def show_issuer(opened: Opened, name: str, account: str, as_json: bool) -> None:
    """Show one entry, with the `sub` of the tokens that its workloads obtain."""
    found = opened.store.read_now(lambda tx: issuer_admin.named(tx, administration.named(tx, account), name))
    (show.document if as_json else show.record)(found.shown())


@issuer.command()
@click.argument("name")
@click.option("--account", required=True, metavar="NAME", help="Its name or id.")
@with_store
@json_option
def remove(opened: Opened, name: str, account: str, as_json: bool) -> None:
    """Trust an issuer no longer. Tokens that its workloads obtained end with it, also by exchange."""
    opened.store.run_now(lambda tx: issuer_admin.remove(tx, administration.named(tx, account), name))
    if as_json:
        show.document({"name": name, "removed": True})
    else:
        print(f"{name} is not trusted any more.")
