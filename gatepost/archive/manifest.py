"""The manifest of an archive: what it contains, the hashes of its files, and a proof that the service wrote it."""

import hashlib
import hmac
import re
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import NamedTuple

import msgspec

from gatepost.core import clock, files, ids
from gatepost.core.errors import BadSetting
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.transaction import LOWEST

FILE = "manifest.json"
FORMAT = "gatepost-archive/1"


class Period(NamedTuple):
    """Whole days in UTC, by the time in the id of a row. `after` is the first day, `before` follows the last one."""

    after: date | None
    before: date

    @property
    def first_at(self) -> int:
        """The first instant, in milliseconds."""
        return 0 if self.after is None else clock.milliseconds(_midnight(self.after))

    @property
    def end_at(self) -> int:
        """The instant after the last one, in milliseconds."""
        return clock.milliseconds(_midnight(self.before))

    def id_range(self) -> tuple[bytes, bytes]:
        """The ids between which all ids of the period are. Both bounds are exclusive."""
        first = int.from_bytes(ids.lowest_at(self.first_at), "big")
        return (first - 1).to_bytes(16, "big") if first else LOWEST, ids.lowest_at(self.end_at)


def period(after: date | None, before: date | None, now: datetime) -> Period:
    """The period up to yesterday, or up to the day before `before`. Raises `BadSetting` if it has not ended.

    Clocks differ and commits wait, so a day counts as ended when `CLOCK_TOLERANCE` has passed.
    """
    last = (now - CLOCK_TOLERANCE).date()
    before = before or last
    if before > last:
        raise BadSetting(f"--before {before}: the day before has not ended (UTC); use {last} or an earlier day")
    if after is not None and after >= before:
        raise BadSetting(f"--after {after}: must be earlier than --before, which is {before}")
    return Period(after, before)


def parse_day(name: str, text: str) -> date:
    """Parse the day in an option. Raises `BadSetting`."""
    try:
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
            raise ValueError(text)
        day = date.fromisoformat(text)
    except ValueError:
        raise BadSetting(f"{name} {text}: not a day; write it as 2026-11-01") from None
    if day.year < 1970:
        raise BadSetting(f"{name} {text}: too early; write a day since 1970-01-01")
    return day


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class ArchivedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of an archive."""

    sha256: str
    bytes: int
    rows: int


class AnchorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last seal that pruning had deleted when the archive was made."""

    number: int
    mac: str
    proof: str


class ArchivedAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an archive contains of an account. Heads are written as SEAL:MAC."""

    account: str
    name: str
    entries: int
    pruned_entries: int  # leaves of the seals whose entries no longer existed
    seals: int
    deliveries: int
    attempts: int
    unsealed_entries: int  # left out
    unfinished_deliveries: int  # left out
    previous: str | None  # the head before the first seal
    last: str | None  # the head at the last seal
    head: str | None  # the head of the whole chain when the archive was made
    anchor: AnchorRecord | None
    checkpoint: str | None  # the newest signed checkpoint when the archive was made


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of manifest.json."""

    format: str
    service: str
    created_at: str
    after: date | None
    before: date
    files: dict[str, ArchivedFile]
    accounts: list[ArchivedAccount]
    proof: str = ""

    @property
    def period(self) -> Period:
        return Period(self.after, self.before)


def expected_proof(key: bytes, manifest: Manifest) -> str:
    """The HMAC of all other members. It also authenticates the deliveries and attempts, which have no seals."""
    fields = msgspec.json.encode(("archive", msgspec.structs.replace(manifest, proof="")))
    return hmac.digest(key, fields, "sha256").hex()


def is_authentic(key: bytes, manifest: Manifest) -> bool:
    """Whether the service with this key wrote the manifest."""
    return hmac.compare_digest(manifest.proof.encode(), expected_proof(key, manifest).encode())


def write(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of an archive, and wait until it is on the disk."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    files.replace(directory / FILE, text + b"\n")


def read(directory: Path) -> Manifest | str:
    """Read the manifest of an archive. Returns what is wrong if it is malformed."""
    try:
        manifest = msgspec.json.decode(_content(directory / FILE), type=Manifest)
    except FileNotFoundError:
        raise BadSetting(f"{directory} is not an archive: it has no {FILE}") from None
    except OSError as error:
        raise BadSetting(f"cannot read {directory / FILE}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"{FILE} is malformed: {error}"
    if manifest.format != FORMAT:
        return f"{FILE} has the format {manifest.format}; this release reads {FORMAT}"
    return manifest


def _content(file: Path) -> bytes:
    with files.open_regular(file) as opened:
        return opened.read()


def describe(file: Path, rows: int) -> ArchivedFile:
    """The size and the hash of a file."""
    with files.open_regular(file) as opened:
        return ArchivedFile(hashlib.file_digest(opened, "sha256").hexdigest(), file.stat().st_size, rows)
