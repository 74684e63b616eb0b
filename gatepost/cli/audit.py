"""`gatepost audit`: read the ledger, verify it, and take it elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click
import msgspec

from gatepost.accounts import OPERATOR, Account, account_rows, administration
from gatepost.cli import show
from gatepost.cli.options import account_option, instant, json_option, with_store
from gatepost.core import clock, ids
from gatepost.core.errors import BadSetting
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
from gatepost.oauth import reports, token_admin
from gatepost.run.app import Opened
from gatepost.store.transaction import Tx

since_option = click.option(
    "--since", type=instant, metavar="WHEN", help="From then on: RFC 3339, or 1h for an hour ago."
)
until_option = click.option("--until", type=instant, metavar="WHEN", help="Up to that time, which is not included.")


@click.group()
def audit() -> None:
    """Read, verify and export the ledger: every fact of an account, once."""


@audit.command("list")
@account_option
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only this type; oauth.token.* for all below it.")
@click.option("--client", default="", metavar="ID", help="Only what this client did.")
@click.option("--subject", default="", metavar="ID", help="Only what is about this.")
@click.option("--token", default="", metavar="TOK", help="Only what mentions this token, by its jti.")
@click.option("--family", default="", metavar="FAM", help="Only what mentions this refresh token's family.")
@click.option("--person", default="", metavar="SUB", help="Only what rests on consents of this person, as `sub`.")
@since_option
@until_option
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@with_store
@json_option
def list_entries(
    opened: Opened, name: str, types: tuple[str, ...], client: str, subject: str, token: str, family: str, person: str,
    since: datetime | None, until: datetime | None, limit: int, as_json: bool,
) -> None:  # fmt: skip
    """The newest entries first. Every condition given must hold."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    mentions = {each for each in (token, family) if each}
    if len(mentions) + bool(person) > 1:
        raise BadSetting("--token, --family and --person: give one of them")
    if person:
        mentions = {
            each.id for each in token_admin.consents_of(opened.store, opened.service, account) if each.subject == person
        }
        if not mentions:
            raise BadSetting(
                f"--person: {account.name} keeps no consent of {person}; `gatepost consent list` shows them"
            )
    wanted = EntryFilter(types, client, subject, since, until, frozenset(mentions))
    found = [entries.render(each) for each in search.newest(opened.store, account.id, wanted, limit)]
    if as_json:
        show.document(found)
        return
    columns = ("at", "id", "type", "actor", "subject", "data")
    show.table(columns, [[each[column] for column in columns] for each in found])


@audit.command()
@account_option
@click.option("--audience", required=True, metavar="URI", help="The resource, as in `aud`.")
@click.option("--at", type=instant, required=True, metavar="WHEN", help="RFC 3339, or 1h for an hour ago.")
@with_store
@json_option
def reach(opened: Opened, name: str, audience: str, at: datetime, as_json: bool) -> None:
    """Which tokens could reach an audience at an instant: signed for it and not expired then.

    Of one that had been ended by then it says so; a verifier that only checks signatures would still have let it in.
    """
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    found = reports.reaching(opened.store, account, audience, at)
    if as_json:
        show.document([each._asdict() for each in found])
        return
    rows = [
        (each.id, each.ended or "live", each.client, each.grant_type, each.scope, clock.rfc3339(each.issued_at),
         clock.rfc3339(each.expires_at))
        for each in found
    ]  # fmt: skip
    show.table(("token", "then", "client", "grant", "scope", "issued", "expires"), rows)


@audit.command()
@click.option("--account", "name", metavar="NAME", help="Only this one, by name or id; all accounts if left out.")
@click.option(
    "--head", metavar="SEAL:MAC", help="The head of an export: shows if the chain was cut or rewritten since."
)
@click.option(
    "--checkpoint", "kept", type=click.File("r", encoding="utf-8"), metavar="FILE",
    help="A checkpoint that was kept: shows if the ledger still extends it.",
)  # fmt: skip
@with_store
@json_option
def verify(opened: Opened, name: str | None, head: str | None, kept: TextIO | None, as_json: bool) -> None:
    """Recompute every seal, and name the first entry that differs.

    Keep the head that is printed somewhere else: with --head it shows later that nothing was cut off.
    """
    expected = seal.parse_head(head) if head is not None else None
    if head is not None and (expected is None or name is None):
        raise BadSetting("--head takes SEAL:MAC, as export and verify print it, together with --account")
    if kept is not None and name is None:
        raise BadSetting("--checkpoint: name the account that it is of with --account")
    found = (
        [opened.store.read_now(lambda tx: administration.named(tx, name))]
        if name
        else administration.every(opened.store)
    )
    accounts_found = list(found)
    problems = heads_problems(opened, accounts_found[0] if name else None)
    told = []
    for account in accounts_found:
        verdict = check(opened, account, expected, _opened_checkpoint(opened, account, kept))
        verdict = verdict._replace(problem=verdict.problem or problems.pop(account.id, ""))
        told.append(_shown(account, verdict))
        if not as_json:
            _say(account, verdict)
    for account_id, problem in problems.items() if not name else ():
        told.append({"account": account_id, "name": None, "problem": problem})
        if not as_json:
            click.echo(f"{account_id}: {problem}")
    if as_json:
        show.document(told)
    if any(each["problem"] for each in told):
        sys.exit(1)


def heads_problems(opened: Opened, only: Account | None = None) -> dict[str, str]:
    """What the heads in the operator's ledger show, by account. For one account, that ledger is verified as well."""
    store, key = opened.store, opened.service.keys.seal
    found = heads.check_heads(store, key, only.id if only else None)
    operator = store.read_now(lambda tx: account_rows.load_named(tx, OPERATOR))
    if only is None or operator is None or only.id == operator.id:
        return found
    problem = verification.verify(store, key, operator.id).problem or found.get(operator.id)
    if problem and only.id not in found:
        found[only.id] = f"the operator's ledger, which holds the heads, does not verify: {problem}"
    return found


def _opened_checkpoint(opened: Opened, account: Account, kept: TextIO | None) -> Checkpoint | None:
    """The checkpoint in the file, if this service signed it for this account."""
    origin = checkpoint.origin(opened.service.base_url, account.id)
    return open_note(kept.read(), opened.service.signer.verifier(origin)) if kept is not None else None


def check(opened: Opened, account: Account, expected: Head | None = None, kept: Checkpoint | None = None) -> Verdict:
    total = opened.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    with show.progress(account.name, total) as passed:
        return verification.verify(opened.store, opened.service.keys.seal, account.id, expected, passed, kept)


def _shown(account: Account, verdict: Verdict) -> dict[str, Any]:
    told = verdict._asdict() | {"head": str(verdict.head), "problem": verdict.problem or None}
    return {"account": account.id, "name": account.name} | told


def _say(account: Account, verdict: Verdict) -> None:
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
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; else standard output.")
@with_store
def export(opened: Opened, name: str, since: datetime | None, until: datetime | None, output: Path | None) -> None:
    """Write every entry as a line of JSON, oldest first, and the head of the chain as the last line.

    Everything exported is sealed under that head: `audit verify --head` shows later if any of it was cut off.
    """
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    total = opened.store.read_now(lambda tx: entry_rows.count(tx, account.id))
    last: Entry | None = None
    with _written(output) as file, show.progress(account.name, total) as passed:
        for entry in search.oldest(opened.store, account.id, EntryFilter(since=since, until=until)):
            file.write(msgspec.json.encode(entries.render(entry)) + b"\n")
            passed(1)
            last = entry
        head = _seal_up_to(opened, account.id, last)
        told = {"account": account.id, "seal": head.number, "mac": head.mac.hex(), "text": str(head)}
        file.write(msgspec.json.encode({"head": told}) + b"\n")


def _seal_up_to(opened: Opened, account: str, last: Entry | None) -> Head:
    """The head once every entry up to `last` is sealed. What comes in meanwhile may wait for its own."""

    def unit(tx: Tx) -> Head | None:
        waiting = seal_rows.unsealed(tx, account, 1)
        if waiting and last is not None and waiting[0].id <= last.id:
            sealing.seal_some(tx, opened.service.keys.seal, account)
            return None
        return seal_rows.last(tx, account) or Head(0, seal.START)

    while (head := opened.store.run_now(unit)) is None:
        pass
    return head


@contextmanager
def _written(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output; or the file, which takes its name when it is whole."""
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
        raise BadSetting(f"cannot write {output}: {error.strerror}; choose another place with -o") from None


@audit.command()
@account_option
@with_store
@json_option
def key(opened: Opened, name: str, as_json: bool) -> None:
    """Print the public key that checkpoints of an account are signed with, as a signed-note verifier key."""
    account = opened.store.read_now(lambda tx: administration.named(tx, name))
    origin = checkpoint.origin(opened.service.base_url, account.id)
    verifier = str(opened.service.signer.verifier(origin))
    if as_json:
        show.document({"origin": origin, "key": verifier})
        return
    print(verifier)


@audit.command()
@click.argument("event")
@click.option("--account", "name", default="", metavar="NAME", help="Its name or id. Left out: the one that has EVENT.")
@with_store
def prove(opened: Opened, event: str, name: str) -> None:
    """Print a proof that an entry is in its account's ledger, for `audit check-proof`.

    The format is tlog-proof of c2sp.org. It holds the whole entry.
    """
    raw_id = ids.parse("evt", event)
    if raw_id is None:
        raise BadSetting(f"{event} is no id of an entry: it must begin with evt_")
    account = (
        opened.store.read_now(lambda tx: administration.named(tx, name)) if name else _account_with(opened, raw_id)
    )
    seal_key = opened.service.keys.seal
    found = opened.store.read_now(lambda tx: proofs.prove(tx, seal_key, account.id, raw_id))
    if found is None:
        _seal_up_to(opened, account.id, opened.store.read_now(lambda tx: entry_rows.load(tx, account.id, raw_id)))
        _record_heads(opened)
        found = opened.store.read_now(lambda tx: proofs.prove(tx, seal_key, account.id, raw_id))
    if found is None:
        raise BadSetting("the account's tree is still being built after the upgrade; try again later")
    print(found.text(), end="")


def _account_with(opened: Opened, raw_id: bytes) -> Account:
    for each in administration.every(opened.store):
        if opened.store.read_now(lambda tx, account=each.id: entry_rows.load(tx, account, raw_id)) is not None:  # type: ignore[misc]
            return each
    raise BadSetting(f"no account has an entry {ids.text('evt', raw_id)}; it may have been pruned")


def _record_heads(opened: Opened) -> None:
    service, after = opened.service, ""
    while True:
        due = opened.store.read_now(
            lambda tx, after=after: heads.due(tx, service.keys.seal, service.signer, service.base_url, after)  # type: ignore[misc]
        )
        opened.store.run_now(lambda tx, due=due: heads.record_heads(tx, service.keys.seal, due.chains))  # type: ignore[misc]
        after = due.next
        if not after:
            return


@audit.command("check-proof")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--key", "public", required=True, metavar="KEY", help="The verifier key, as `audit key` prints it.")
@json_option
def check_proof(file: TextIO, public: str, as_json: bool) -> None:
    """Check a proof that `audit prove` printed. It needs the public key alone: no store, no settings."""
    found = receipt.check(file.read(), parse_verifier(public))
    shown = {
        "entry": entries.render(found.entry), "leaf": found.number, "size": found.checkpoint.size,
        "origin": found.checkpoint.origin,
    }  # fmt: skip
    if as_json:
        show.document(shown)
        return
    click.echo(f"{found.entry.name} is leaf {found.number} of {found.checkpoint.size} in {found.checkpoint.origin}")
    show.document(shown["entry"])
