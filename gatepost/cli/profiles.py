"""Credentials in files that only their owner can read: `--save` writes them, and `--profile` reads them.

The file is a JSON object with `client_id`, `client_secret`, and `remote`, the URL of the service.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gatepost.cli.options import http_url
from gatepost.core import files
from gatepost.core.errors import BadSetting, Refusal, Refused
from gatepost.core.strict_json import read_json
from gatepost.settings import LOOPBACK


class Profile(NamedTuple):
    """A service, and the client that calls it."""

    remote: str
    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"Profile(remote={self.remote!r})"


def load(remote: str, file: str) -> Profile:
    """Return the profile of the file, or else of GATEPOST_CLIENT_ID and GATEPOST_CLIENT_SECRET."""
    members = read(Path(file)) if file else {}
    own = str(members.get("remote") or "")
    if remote and own and remote.rstrip("/") != own.rstrip("/"):
        raise BadSetting(
            f"--remote: {remote} is not the service of {file}, which is {own}; its secret is not sent elsewhere. "
            f"Leave out --remote and GATEPOST_REMOTE, or use another file"
        )
    remote = remote or own
    _check_url(remote, file)
    if not file:
        members = {name: os.environ.get(f"GATEPOST_{name.upper()}", "") for name in ("client_id", "client_secret")}
    client_id, secret = (str(members.get(name) or "") for name in ("client_id", "client_secret"))
    if not client_id or not secret:
        how = f"write them to {file}" if file else "set GATEPOST_CLIENT_ID and GATEPOST_CLIENT_SECRET, or use --profile"
        raise BadSetting(f"client_id and client_secret are missing; {how}")
    try:
        (client_id + secret).encode()
    except UnicodeEncodeError:
        raise BadSetting("client_id and client_secret must be UTF-8 text") from None
    return Profile(remote.rstrip("/"), client_id, secret)


def _check_url(remote: str, file: str) -> None:
    if not remote:
        where = f"as `remote` in {file}" if file else "in a file with --profile"
        raise BadSetting(f"the URL of the service is missing; name it with --remote, or {where}")
    url = http_url(remote)
    if url is None or url.path.strip("/") or any(mark in remote for mark in "@?#"):
        raise BadSetting("--remote: must be the base URL of a service, such as https://gatepost.example.com")
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        raise BadSetting("--remote: must be an https URL; http would send the client's secret unencrypted")


def read(file: Path) -> dict[str, Any]:
    """Return the members of a file that only its owner can read."""
    try:
        if file.exists() and not file.is_file():
            raise BadSetting(f"{file} is not a file")
        if file.stat().st_mode & 0o077:
            raise BadSetting(f"{file} can be read by other users; run: chmod 600 {file}")
        parsed = read_json(file.read_bytes())
    except OSError as error:
        raise BadSetting(f"cannot read {file}: {error.strerror}") from None
    if isinstance(parsed, Refusal) or not isinstance(parsed.value, dict):
        raise BadSetting(f"{file} is not a profile: it must be a JSON object with client_id and client_secret")
    return parsed.value


def save(file: Path, members: dict[str, Any]) -> None:
    """Write members to a file that only its owner can read. A file of that name is replaced."""
    try:
        files.replace(file, msgspec.json.format(msgspec.json.encode(members), indent=2) + b"\n")
    except OSError as error:
        raise BadSetting(f"cannot write {file}: {error.strerror}; choose another file with --save") from None


def check_saved(file: Path, member: str, value: str, advice: str) -> None:
    """Raise unless the file has the secret of a resource that existed before, which cannot be shown again."""
    if not file.exists() or read(file).get(member) != value:
        raise Refused(f"{value} exists already, and {file} does not have its secret; {advice}")
