"""`gatepost issuer`: the issuers whose tokens an account's workloads may exchange."""

import click

from gatepost.accounts import lookup
from gatepost.cli import show
from gatepost.cli.options import account_option, with_store
from gatepost.oauth import issuer_admin, issuer_rows
from gatepost.run.app import Runtime

_account = click.option(
    "--account", required=True, metavar="NAME", envvar="GATEPOST_ACCOUNT",
    help="Name or id of the account. The default is GATEPOST_ACCOUNT.",
)  # fmt: skip


@click.group()
def issuer() -> None:
    """Trust issuers of workload identities, whose tokens the jwt-bearer grant exchanges."""


@issuer.command()
@click.argument("name")
@_account
@click.option("--issuer", "issued_by", required=True, metavar="ISS", help="The `iss` of its tokens.")
@click.option("--jwks-uri", required=True, metavar="URL", help="Where its keys are published.")
@click.option("--match", multiple=True, required=True, metavar="CLAIM=VALUE", help="A claim and its exact value.")
@click.option("--client", required=True, metavar="CLIENT_ID", help="The client that may present its tokens.")
@click.option("--scope", multiple=True, required=True, help="A scope that such a token may obtain.")
@click.option("--once", is_flag=True, help="Accept each of its tokens once. The `jti` claim is then required.")
@with_store
def add(
    runtime: Runtime, name: str, account: str, issued_by: str, jwks_uri: str, match: tuple[str, ...], client: str,
    scope: tuple[str, ...], once: bool, as_json: bool,
) -> None:  # fmt: skip
    """Trust tokens of an issuer whose claims match, for one client and these scopes."""
    added = runtime.store.run_now(
        lambda tx: issuer_admin.add(
            tx, runtime.service, lookup.named(tx, account), name, issuer=issued_by, jwks_uri=jwks_uri,
            match=list(match), client=client, scope=list(scope), once=once,
        )
    )  # fmt: skip
    show.record(added.render(), as_json=as_json)


@issuer.command("list")
@account_option
@with_store
def list_issuers(runtime: Runtime, name: str, as_json: bool) -> None:
    """List the issuers that an account trusts, by name."""
    issuers = runtime.store.read_now(lambda tx: issuer_rows.load(tx, lookup.named(tx, name).id))
    if as_json:
        show.document([issuer.render() for issuer in issuers])
        return
    rows = [(issuer.name, issuer.issuer, issuer.match, issuer.client, " ".join(issuer.scope)) for issuer in issuers]
    show.table(("name", "issuer", "match", "client", "scope"), rows)


@issuer.command("show")
@click.argument("name")
@_account
@with_store
def show_issuer(runtime: Runtime, name: str, account: str, as_json: bool) -> None:
    """Show an issuer, with the `sub` of the tokens that its workloads obtain."""
    issuer = runtime.store.read_now(lambda tx: issuer_admin.named(tx, lookup.named(tx, account), name))
    show.record(issuer.render(), as_json=as_json)


@issuer.command()
@click.argument("name")
@_account
@with_store
def remove(runtime: Runtime, name: str, account: str, as_json: bool) -> None:
    """Stop trusting an issuer. All tokens that its workloads obtained end, including exchanged ones."""
    runtime.store.run_now(lambda tx: issuer_admin.remove(tx, lookup.named(tx, account), name))
    show.message({"name": name, "removed": True}, f"{name} is no longer trusted.", as_json=as_json)
