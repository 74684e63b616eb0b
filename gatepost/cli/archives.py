"""Archives: `gatepost store archive` writes them, and `gatepost audit verify --archive` verifies them."""

import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from gatepost.accounts import Account
from gatepost.archive import manifest
from gatepost.archive.manifest import Period
from gatepost.cli import show
from gatepost.core.errors import BadSetting
from gatepost.run.app import Runtime


def parse_period(after: str | None, before: str | None, now: datetime) -> Period:
    """Parse --after and --before."""
    return manifest.period(
        None if after is None else manifest.parse_day("--after", after),
        None if before is None else manifest.parse_day("--before", before),
        now,
    )


def write(runtime: Runtime, accounts: Iterable[Account], period: Period, directory: Path, *, as_json: bool) -> None:
    """Write an archive, and print what it contains."""
    _check_extra()
    from gatepost.archive import export  # noqa: PLC0415 (an extra that may not be installed)

    source = export.Source(runtime.store, runtime.service.keys.seal, runtime.service.base_url)
    with show.progress("rows") as advance:
        made = export.export(source, accounts, period, directory, advance)
    size = sum(file.bytes for file in made.files.values())
    place = show.printable(str(directory.absolute()))  # its path may not be valid UTF-8
    if as_json:
        show.document({"directory": place, "bytes": size, "manifest": made})
        return
    listed: list[dict[str, Any]] = [msgspec.to_builtins(account) for account in made.accounts]
    left_out = ("unsealed_entries", "unfinished_deliveries")
    columns = {"account": "name"} | show.headings("entries", "seals", "deliveries", "attempts", *left_out)
    show.listing(listed, columns)
    if any(account[noun] for account in listed for noun in left_out):
        click.echo("Unsealed entries and unfinished deliveries were left out. Archive the period again later.")
    days = f"from {period.after} " if period.after else ""
    click.echo(f"Archived {days}to the end of the day before {period.before} in {place}: {size} bytes.")
    click.echo("The archive was verified. Nothing was deleted.")


def verify(directory: Path, key: bytes | None, *, as_json: bool) -> None:
    """Verify an archive, and print the result. A problem makes the command fail."""
    _check_extra()
    from gatepost.archive.verify import verify as verify_archive  # noqa: PLC0415 (an extra that may not be installed)

    with show.progress("rows") as advance:
        verdict = verify_archive(directory, key, advance)
    if as_json:
        show.document(verdict._asdict())
    else:
        counts = (
            f"entries {verdict.entries}, seals {verdict.seals}, deliveries {verdict.deliveries}, "
            f"attempts {verdict.attempts}"
        )
        click.echo("\n".join(map(show.printable, verdict.problems)) or f"{directory}: intact: {counts}")
        if not verdict.with_key:
            click.echo(
                "Without the key, the files were compared with the manifest, and the entries with the leaves of their "
                "seals.\nThe manifest and the seals themselves were not authenticated: verify them without "
                "--without-key."
            )
    if verdict.problems:
        sys.exit(1)


def _check_extra() -> None:
    try:
        from gatepost.archive import parquet  # noqa: F401, PLC0415 (an extra that may not be installed)
    except ImportError:
        raise BadSetting("archives need an extra; run: pip install 'gatepost[archive]'") from None
