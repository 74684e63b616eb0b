"""`gatepost audit`: read, verify and export the ledger."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click
import msgspec

from gatepost.accounts import OPERATOR, Account, account_rows, lookup
from gatepost.cli import archives, show
from gatepost.cli.operations import account_of
from gatepost.cli.options import (
    account_named,
    account_option,
    filter_option,
    instant,
    json_option,
    limit_option,
    optional_account,
    read_text,
    since_option,
    until_option,
    with_runtime,
    with_settings,
    with_store,
)
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting, NotFound, Refused
from gatepost.ledger import (
    checkpoint,
    entries,
    entry_rows,
    heads,
    proofs,
    receipt,
    seal,
    seal_rows,
    sealing,
    search,
    verification,
)
from gatepost.ledger.checkpoint import Checkpoint, open_note, parse_verifier
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import Head
from gatepost.ledger.search import EntryFilter
from gatepost.ledger.verification import Verdict
from gatepost.oauth import consent_rows, reports, token_admin
from gatepost.oauth.token_admin import TokenSelector
from gatepost.run.app import Runtime, open_for_use
from gatepost.settings import Settings
from gatepost.store.transaction import Tx


@click.group()
def audit() -> None:
    """Read, verify and export the ledger of an account."""


@audit.command("show")
@click.argument("event")
@optional_account
@with_store
def show_entry(runtime: Runtime, event: str, name: str, as_json: bool) -> None:
    """Show one entry of the ledger, by its id."""
    account = account_of(runtime, name, event)
    raw_id = ids.parse("evt", event)
    entry = runtime.store.read_now(lambda tx: entry_rows.load(tx, account.id, raw_id)) if raw_id else None
    if entry is None:
        raise NotFound(f"{account.name} has no entry {event}; it may have been pruned")
    show.record(entries.render(entry), as_json=as_json)


@audit.command("list")
@optional_account
@click.option(
    "--type", "types", multiple=True, metavar="TYPE",
    help="Only this type; oauth.token.* selects all types with this prefix.",
)  # fmt: skip
@filter_option("--client", default="", metavar="ID", help="Only entries of this client.")
@filter_option("--subject", default="", metavar="ID", help="Only entries about this subject.")
@filter_option("--token", default="", metavar="TOK", help="Only entries that mention this token, by its jti.")
@filter_option("--family", default="", metavar="FAM", help="Only entries that mention this refresh token family.")
@filter_option(
    "--person", default="", metavar="SUB", help="Only entries that depend on consents of this person, by `sub`."
)
@since_option
@until_option
@limit_option(50, "entries")
@with_store
def list_entries(
    runtime: Runtime, name: str, types: tuple[str, ...], client: str, subject: str, token: str, family: str,
    person: str, since: datetime | None, until: datetime | None, limit: int, as_json: bool,
) -> None:  # fmt: skip
    """List entries, newest first. An entry must match all conditions."""
    account = account_of(runtime, name, client, subject)
    if client:
        token_admin.account_of(runtime.store, TokenSelector(client=client), account.id)  # checks that it exists
    mentions = {mention for mention in (token, family) if mention}
    if len(mentions) + bool(person) > 1:
        raise BadSetting("--token, --family and --person cannot be combined; use one of them")
    if person:
        consents = consent_rows.every(runtime.store, account.id, runtime.service.keys.data)
        mentions = {consent.id for consent in consents if consent.subject == person}
        if not mentions:
            raise NotFound(f"--person: {account.name} has no consent of {person}; see `gatepost consent list`")
    wanted = EntryFilter(types, client, subject, since, until, frozenset(mentions))
    rendered = [entries.render(entry) for entry in search.newest(runtime.store, account.id, wanted, limit)]
    show.listing(rendered, show.headings("at", "id", "type", "actor", "subject", "data"), as_json=as_json)


@audit.command()
@account_option
@click.option("--audience", required=True, metavar="URI", help="The resource, as in the `aud` claim.")
@click.option("--at", type=instant, required=True, metavar="TIME", help="RFC 3339, or 1h for an hour ago.")
@with_store
def reach(runtime: Runtime, name: str, audience: str, at: datetime, as_json: bool) -> None:
    """List the tokens for an audience that had not expired at a given time.

    Tokens that had been revoked by then are marked. A verifier that only checks signatures would have accepted them.
    """
    tokens = reports.unexpired_tokens(runtime.store, account_named(runtime, name), audience, at)
    if as_json:
        show.document([token._asdict() for token in tokens])
        return
    rows = [
        (token.id, token.ended or "live", token.client, token.grant_type, token.scope, clock.rfc3339(token.issued_at),
         clock.rfc3339(token.expires_at))
        for token in tokens
    ]  # fmt: skip
    show.table(("token", "state", "client", "grant", "scope", "issued", "expires"), rows)


@audit.command()
@click.option("--account", "name", metavar="NAME", help="Name or id of the account. The default is all accounts.")
@click.option("--head", metavar="SEAL:MAC", help="The head of an export: detects a chain that was cut or rewritten.")
@click.option(
    "--checkpoint", "saved", type=click.File("r", encoding="utf-8"), metavar="FILE",
    help="A saved checkpoint: checks that the ledger still extends it.",
)  # fmt: skip
@click.option(
    "--archive", "archive", type=click.Path(path_type=Path), metavar="DIR",
    help="Verify this archive of `store archive` instead of the store.",
)  # fmt: skip
@click.option(
    "--without-key", is_flag=True,
    help="Verify as much of the archive as is possible without the service's key. Needs no store.",
)  # fmt: skip
@with_settings
@json_option
def verify(
    settings: Settings, name: str | None, head: str | None, saved: TextIO | None, archive: Path | None,
    without_key: bool, as_json: bool,
) -> None:  # fmt: skip
    """Recompute every seal, and report the first entry that differs.

    Save the printed head elsewhere. With --head, a later run detects whether entries were removed.
    """
    if archive is None and without_key:
        raise BadSetting("--without-key needs --archive: the store cannot be verified without its key")
    if archive is not None and (name, head, saved) != (None, None, None):
        raise BadSetting("--archive cannot be combined with --account, --head or --checkpoint")
    if archive is not None and without_key:
        archives.verify(archive, None, as_json=as_json)
        return
    runtime = open_for_use(settings)
    with closing(runtime.store):
        if archive is not None:
            archives.verify(archive, runtime.service.keys.seal, as_json=as_json)
        else:
            _verify_store(runtime, name, head, saved, as_json)


def _verify_store(runtime: Runtime, name: str | None, head: str | None, saved: TextIO | None, as_json: bool) -> None:
    expected = seal.parse_head(head) if head is not None else None
    if head is not None and (expected is None or name is None):
        raise BadSetting("--head needs SEAL:MAC, as export and verify print it, and --account")
    if saved is not None and name is None:
        raise BadSetting("--checkpoint needs --account, the account that it belongs to")
    accounts = [account_named(runtime, name)] if name is not None else list(lookup.every(runtime.store))
    problems = heads_problems(runtime, accounts[0] if name is not None else None)
    results = []
    for account in accounts:
        verdict = verify_ledger(runtime, account, expected, _saved_checkpoint(runtime, account, saved))
        problem_of_heads = problems.pop(account.id, "")
        verdict = verdict._replace(problem=verdict.problem or problem_of_heads)
        results.append(_render(account, verdict))
        if not as_json:
            _print(account, verdict)
    for account_id, problem in problems.items() if name is None else ():
        results.append({"account": account_id, "name": None, "problem": problem})
        if not as_json:
            click.echo(f"{account_id}: {problem}")
    if as_json:
        show.document(results)
    if any(result["problem"] for result in results):
        sys.exit(1)


def heads_problems(runtime: Runtime, only: Account | None = None) -> dict[str, str]:
    """Return the problems that the heads in the operator's ledger show. For one account, also verify that ledger."""
    store, key = runtime.store, runtime.service.keys.seal
    problems = heads.check_heads(store, key, only.id if only else None)
    operator = store.read_now(lambda tx: account_rows.load_named(tx, OPERATOR))
    if only is None or operator is None or only.id == operator.id:
        return problems
    problem = verification.verify(store, key, operator.id).problem or problems.get(operator.id)
    if problem and only.id not in problems:
        problems[only.id] = f"the operator's ledger, which holds the heads, does not verify: {problem}"
    return problems


def _saved_checkpoint(runtime: Runtime, account: Account, saved: TextIO | None) -> Checkpoint | None:
    """Return the checkpoint in the file, verified with this service's key for this account."""
    origin = checkpoint.origin(runtime.service.base_url, account.id)
    return open_note(read_text(saved), runtime.service.signer.verifier(origin)) if saved is not None else None


def verify_ledger(
    runtime: Runtime, account: Account, expected: Head | None = None, saved: Checkpoint | None = None
) -> Verdict:
    """Verify the ledger of an account, with a progress bar."""
    total = runtime.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    with show.progress(account.name, total) as advance:
        return verification.verify(runtime.store, runtime.service.keys.seal, account.id, expected, advance, saved)


def _render(account: Account, verdict: Verdict) -> dict[str, Any]:
    members = verdict._asdict() | {"head": str(verdict.head), "problem": verdict.problem or None}
    return {"account": account.id, "name": account.name} | members


def _print(account: Account, verdict: Verdict) -> None:
    waiting = f", {verdict.unsealed} not sealed yet" if verdict.unsealed else ""
    if verdict.problem:
        click.echo(f"{account.name}: {verdict.problem}")
        click.echo(f"  intact before it: entries {verdict.entries}, seals {verdict.seals}, head {verdict.head}")
    else:
        click.echo(f"{account.name}: intact: entries {verdict.entries}, seals {verdict.seals}{waiting}")
        click.echo(f"  head {verdict.head}")


@audit.command()
@account_option
@since_option
@until_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. The default is standard output.",
)  # fmt: skip
@with_runtime
def export(runtime: Runtime, name: str, since: datetime | None, until: datetime | None, output: Path | None) -> None:
    """Write every entry as a line of JSON, oldest first, and the head of the chain as the last line.

    That head seals everything in the export: `audit verify --head` detects later whether any of it was removed.
    """
    if output is not None and output.exists():
        raise Refused(f"{output} exists already; choose another name, so that no export is overwritten")
    account = account_named(runtime, name)
    total = runtime.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    last: Entry | None = None
    with _open_output(output) as file, show.progress(account.name, total) as advance:
        for entry in search.oldest(runtime.store, account.id, EntryFilter(since=since, until=until)):
            file.write(msgspec.json.encode(entries.render(entry)) + b"\n")
            advance(1)
            last = entry
        head = _seal_up_to(runtime, account.id, last)
        members = {"account": account.id, "seal": head.number, "mac": head.mac.hex(), "text": str(head)}
        file.write(msgspec.json.encode({"head": members}) + b"\n")


def _seal_up_to(runtime: Runtime, account: str, last: Entry | None) -> Head:
    """Return the head after every entry up to `last` is sealed. Newer entries may stay unsealed."""

    def unit(tx: Tx) -> Head | None:
        waiting = entry_rows.load_many(tx, seal_rows.unsealed(tx, [account], 1)[account])
        if last is not None and any(entry.id <= last.id for entry in waiting.values()):
            sealing.seal_batch(tx, runtime.service.keys.seal, account)
            return None
        return seal_rows.last(tx, account) or Head(0, seal.START)

    while (head := runtime.store.run_now(unit)) is None:
        pass
    return head


@contextmanager
def _open_output(output: Path | None) -> Iterator[BinaryIO]:
    """Open standard output, or the file, which gets its name when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        return
    part = output.with_name(output.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BadSetting(f"cannot write {output}: {error.strerror}; choose another file with -o") from None


@audit.command()
@account_option
@with_store
def key(runtime: Runtime, name: str, as_json: bool) -> None:
    """Print the public key of an account's checkpoints, as a signed-note verifier key."""
    origin = checkpoint.origin(runtime.service.base_url, account_named(runtime, name).id)
    verifier = str(runtime.service.signer.verifier(origin))
    show.message({"origin": origin, "key": verifier}, verifier, as_json=as_json)


@audit.command()
@click.argument("event")
@optional_account
@with_runtime
def prove(runtime: Runtime, event: str, name: str) -> None:
    """Print a proof that an entry is in its account's ledger, for `audit check-proof`.

    The format is tlog-proof of c2sp.org. The proof contains the whole entry.
    """
    raw_id = ids.parse("evt", event)
    if raw_id is None:
        raise NotFound(f"there is no entry {event}; `gatepost audit list` lists them")
    account = account_of(runtime, name, event)
    seal_key = runtime.service.keys.seal
    proof = runtime.store.read_now(lambda tx: proofs.prove(tx, seal_key, account.id, raw_id))
    if proof is None:
        _seal_up_to(runtime, account.id, runtime.store.read_now(lambda tx: entry_rows.load(tx, account.id, raw_id)))
        _record_heads(runtime)
        proof = runtime.store.read_now(lambda tx: proofs.prove(tx, seal_key, account.id, raw_id))
    if proof is None:
        raise Refused("the account's tree is still being built after the upgrade; try again later")
    print(proof.text(), end="")


def _record_heads(runtime: Runtime) -> None:
    service, after = runtime.service, ""
    key = service.keys.seal
    while True:
        due = runtime.store.read_now(
            partial(heads.due, key=key, signer=service.signer, base_url=service.base_url, after=after)
        )
        runtime.store.run_now(partial(heads.record_heads, key=key, grown=due.chains))
        after = due.next
        if not after:
            return


@audit.command("check-proof")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--key", "public", required=True, metavar="KEY", help="The verifier key, as `audit key` prints it.")
@json_option
def check_proof(file: TextIO, public: str, as_json: bool) -> None:
    """Check a proof that `audit prove` printed. Needs only the public key: no store and no settings."""
    proof = receipt.check(read_text(file), parse_verifier(public))
    members = {
        "entry": entries.render(proof.entry), "leaf": proof.number, "size": proof.checkpoint.size,
        "origin": proof.checkpoint.origin,
    }  # fmt: skip
    if as_json:
        show.document(members)
        return
    click.echo(f"{proof.entry.name} is leaf {proof.number} of {proof.checkpoint.size} in {proof.checkpoint.origin}")
    show.document(members["entry"])
