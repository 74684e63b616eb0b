"""`gatepost doctor`: checks the settings and everything they refer to, without changing anything."""

import asyncio
import http.client
import os
import resource
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from gatepost.accounts import account_rows, lookup, server_keys
from gatepost.cli import show
from gatepost.cli.options import json_option, load_settings, settings_options
from gatepost.cli.show import Check, Status
from gatepost.core import clock
from gatepost.core.errors import BadSetting, GatepostError, Unavailable
from gatepost.core.secrets import Box
from gatepost.ledger import outbox_rows
from gatepost.oauth import key_rows, resources, scope_rows, shared_resources
from gatepost.run import app
from gatepost.settings import LOOPBACK, Settings, unknown_variables
from gatepost.store import nodes
from gatepost.store.interface import Store
from gatepost.store.schema_check import StoreInfo, Wakeups, schema_problem
from gatepost.store.transaction import Tx
from gatepost.webhooks import endpoint_headers

FEW_FILES = 4096  # open files of a process
LOW_DISK, NO_DISK = 1024**3, 100 * 1024**2
SKEW, MAX_SKEW = timedelta(seconds=1), timedelta(seconds=10)
MANY_REFUSED = 1000  # rows of the outbox, which are not counted further
_TIMEOUT = 5.0  # seconds: /readyz waits for the store


@click.command()
@settings_options
@json_option
def doctor(config: str, data: str | None, database: str | None, as_json: bool) -> None:
    """Check the settings and what they refer to: keys, store, disk, bus, ports, clock."""
    show.checks(_checks(config, data, database), as_json=as_json)


def _checks(config: str, data: str | None, database: str | None) -> Iterator[Check]:
    try:
        settings = load_settings(config, data, database)
    except BadSetting as error:
        yield Check("settings", "problem", str(error))
        return
    yield Check("settings", "ok", "all settings are valid")
    for variable, similar in unknown_variables(os.environ).items():
        do = f"did you mean {similar}?" if similar else "remove it, or correct its name"
        yield Check("settings", "warning", f"{variable} is not a variable of Gatepost and has no effect", do)
    yield _check_base_url(settings)
    problem = "" if settings.database else _directory_problem(settings.data_directory)
    if problem:
        do = "set --data or GATEPOST_DATA to a directory that the service can write, or run doctor as its user"
        yield Check("data directory", "problem", problem, do)
    else:
        yield from _check_master_key(settings)
        if not settings.database:
            yield _check_disk(settings.data_directory)
        yield from _check_store(settings)
    yield _check_files()
    yield from _check_nats(settings)
    yield from _check_bus(settings)
    own = _identity(settings)
    yield _check_port("public port", settings.host, settings.port, own, "/oauth/jwks", _has_key_of)
    check = _check_port("operations port", settings.ops_host, settings.ops_port, own, "/healthz", _is_instance)
    yield check if check.status != "ok" else _check_ready(settings, check)


def _check_files() -> Check:
    """Every connection is a file: to a client, a receiver or the database."""
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= FEW_FILES:
        return Check("files", "ok", "the limit of open files is high enough")
    do = f"raise the hard limit to {FEW_FILES} or more: LimitNOFILE= in systemd, ulimit -Hn in a shell"
    return Check("files", "warning", f"a process may open only {limit} files, too few for many connections", do)


def _check_base_url(settings: Settings) -> Check:
    name, issuer = "base URL", settings.issuer
    if settings.dev and (issuer.startswith("https:") or settings.host not in LOOPBACK):
        found = f"{issuer}, with dev on: http and private receivers are allowed"
        return Check(name, "warning", found, "serve without --dev")
    if issuer.startswith("http:") and not settings.dev:
        do = "set GATEPOST_BASE_URL to the https:// URL that clients use"
        return Check(name, "warning", f"{issuer} can be used on this machine only", do)
    return Check(name, "ok", issuer)


def _check_master_key(settings: Settings) -> Iterator[Check]:
    name, path = "master key", settings.key_file
    try:
        is_created = not (settings.master_key or settings.master_key_file or settings.database or path.exists())
        if is_created and not settings.sqlite_file.exists():
            yield Check(name, "ok", f"the first start creates {path}")
            return
        app.master_keys(settings)
    except BadSetting as error:
        yield Check(name, "problem", str(error))
        return
    except OSError as error:
        yield Check(name, "problem", f"cannot read {path}: {error.strerror}", "run as the owner of the file")
        return
    if settings.master_key:
        yield Check(name, "ok", "from GATEPOST_MASTER_KEY")
        return
    yield Check(name, "ok", f"in {path}, which only its owner can read")
    if path.parent.stat().st_mode & 0o022:
        yield Check(name, "warning", f"other users can replace it in {path.parent}", f"run: chmod go-w {path.parent}")


def _directory_problem(directory: Path) -> str:
    """Return why the service could not use the data directory, or create it."""
    existing = _existing(directory)
    if not existing.is_dir():
        return f"{existing} is not a directory"
    if os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return ""
    return f"{directory} cannot be {'used' if existing == directory.absolute() else 'created'} by this user"


def _existing(directory: Path) -> Path:
    """Return the directory, or else its nearest parent that exists."""
    absolute = directory.absolute()
    return next(path for path in (absolute, *absolute.parents) if os.path.exists(path))  # noqa: PTH110 (does not raise)


def _check_disk(directory: Path) -> Check:
    existing = _existing(directory)
    free = shutil.disk_usage(existing).free
    found = f"{free // 1024**2} MiB free in {existing}"
    if free >= LOW_DISK:
        return Check("disk", "ok", found)
    status: Status = "problem" if free < NO_DISK else "warning"
    return Check("disk", status, found, "free disk space, or move the data directory")


# --- the store


def _check_store(settings: Settings) -> Iterator[Check]:
    if not settings.database and not settings.sqlite_file.exists():
        do = "gatepost serve creates it; or set --data or GATEPOST_DATA to the right directory"
        yield Check("store", "warning", f"there is no store in {settings.data_directory}", do)
        return
    try:
        store = app.open_store(settings)
    except BadSetting as error:
        yield Check("store", "problem", str(error))
        return
    except PermissionError as error:
        yield Check(
            "store", "problem", f"cannot read {error.filename}: {error.strerror}", "run as the owner of the file"
        )
        return
    try:
        info = yield from _check_database(store)
        if info.search_path_problem:
            yield Check("search path", "problem", *info.search_path_problem)
            return
        schema = check_schema(store)
        yield schema
        if schema.status == "ok":
            yield from _check_contents(settings, store)
    except BadSetting as error:
        yield Check("store", "problem", str(error))
    except GatepostError as error:
        do = "check that the database runs and the URL is right" if settings.database else "see `gatepost store check`"
        yield Check("store", "problem", str(error), do)
    finally:
        store.close()


def _check_contents(settings: Settings, store: Store) -> Iterator[Check]:
    """Check what is in the tables. They must be those of this release."""
    yield from _check_nodes(store)
    yield from _check_outbox(store)
    yield _check_server_keys(settings, store)
    yield _check_hidden_headers(store)
    yield from _check_allowed_networks(settings, store)
    yield from _check_scopes(settings, store)


def _check_database(store: Store) -> Generator[Check, None, StoreInfo]:
    before = clock.now()
    info = store.info()
    after = clock.now()
    if info.read_only:
        do = "connect to the primary, without target_session_attrs in the URL, or switch the setting off"
        yield Check("store", "problem", f"{info.engine} responds, but cannot write: {info.read_only}", do)
    else:
        yield Check("store", "ok", f"{info.engine} responds")
    if info.dangers:
        do = "change it back" if info.clock else "start the service, which sets it; network shares do not support it"
        yield Check("durability", "problem", f"{', '.join(info.dangers)}: a commit can be lost", do)
    else:
        yield Check("durability", "ok", "commits are written to the disk")
    if info.replication:
        found = f"{info.replication}; a failover can lose acknowledged tokens and events"
        do = "replicate synchronously; in Patroni, set synchronous_mode and synchronous_mode_strict"
        yield Check("replication", "warning", found, do)
    yield from _check_distribution(store, info.not_distributed)
    yield from (Check("privileges", "problem", found, do) for found, do in info.missing_privileges)
    if info.clock:
        yield _check_clock(info.clock, before, after)
    if info.pooled:
        yield Check("pooler", "ok", "connects through a connection pooler, and keeps no state in sessions")
    if info.pooled or info.wakeups != "listen":
        yield _WAKEUPS[info.wakeups]
    return info


def _check_distribution(store: Store, not_distributed: tuple[str, ...]) -> Iterator[Check]:
    with suppress(Unavailable):  # there may be no tables yet, which another check reports
        store.read_now(lambda _tx: None)  # connects, which tells whether the store is distributed
    if store.shards is None:
        return
    down = store.shards.unreachable()
    for node in store.shards.nodes:
        if node.name in down:
            do = "start it; the accounts on its shards get 503 until then"
            yield Check("database node", "problem", f"{node.name} cannot be reached from the coordinator", do)
        else:
            yield Check("database node", "ok", f"{node.name} responds")
    if not_distributed:
        do = "stop the service, and run: gatepost store distribute"
        yield Check("distribution", "warning", f"not distributed yet: {', '.join(not_distributed)}", do)


_WAKEUPS: dict[Wakeups, Check] = {
    "listen": Check("LISTEN", "ok", "has a direct connection (database_listen)"),
    "poll": Check("LISTEN", "ok", "not used through the pooler without database_listen; workers poll every second"),
    "pooled": Check(
        "LISTEN", "warning", "database_listen leads to a pooler, which does not support LISTEN in transaction mode",
        "use the URL of the server itself, or of a pooler in session mode",
    ),
    "unreachable": Check(
        "LISTEN", "warning", "database_listen cannot be reached; workers poll every second", "check the URL"
    ),
}  # fmt: skip


def _check_nodes(store: Store) -> Iterator[Check]:
    """List the nodes. A node that ended by itself is not listed, and one that was killed is for a day."""

    def unit(tx: Tx) -> tuple[int, list[nodes.Node]]:
        return tx.now, nodes.load(tx)

    now, found = store.read_now(unit)
    for node in found:
        seconds = max(0, now - node.beat_at) // 1000
        described = f"{node.host} ({node.kind}, version {node.version}), last heartbeat {seconds} s ago"
        if node.is_silent(now):
            do = "if it was not shut down on purpose, see whether it runs and reaches the database"
            yield Check("node", "warning", described, do)
        else:
            yield Check("node", "ok", described)


def _check_outbox(store: Store) -> Iterator[Check]:
    if count := store.read_now(partial(outbox_rows.count_refused, limit=MANY_REFUSED)):
        number = f"{count} or more" if count == MANY_REFUSED else f"{count}"
        found = f"refused rows in gatepost_outbox: {number}"
        do = "their column `refused` has the reason; correct it and set `refused` to NULL, or delete the row"
        yield Check("outbox", "warning", found, do)


def _check_clock(database: datetime, before: datetime, after: datetime) -> Check:
    skew = max(before - database, database - after, timedelta())
    if skew <= SKEW:
        return Check("clock", "ok", "agrees with the database's clock")
    status: Status = "problem" if skew > MAX_SKEW else "warning"
    return Check("clock", status, f"{skew} off the database's clock", "synchronize both machines with NTP")


def check_schema(store: Store) -> Check:
    """Check that the schema is the one of this release."""
    applied = store.applied()
    problem = schema_problem(store.dialect, applied)
    return Check("schema", "problem" if problem else "ok", problem or f"at {max(applied)}, the newest")


def _check_server_keys(settings: Settings, store: Store) -> Check:
    name = "server keys"
    try:
        master = Box(app.master_keys(settings))
    except (BadSetting, OSError):
        return Check(name, "problem", "cannot be decrypted without a master key", "see above")

    def unit(tx: Tx) -> set[bytes]:
        server_keys.open_keys(tx, master, make=False)
        return {master.key_id_of(wrapped) for wrapped in server_keys.load(tx).values()}

    try:
        key_ids = store.read_now(unit)
    except BadSetting as error:
        return Check(name, "problem", str(error))
    if key_ids != {master.current_key_id}:
        return Check(name, "warning", "some are not encrypted with the first master key", "run: gatepost key rewrap")
    return Check(name, "ok", "encrypted with the first master key")


def _check_hidden_headers(store: Store) -> Check:
    name, count = "endpoints", store.read_now(endpoint_headers.count_unencrypted)
    if count:
        found = f"{count} have hidden header values that an earlier release stored unencrypted"
        return Check(name, "warning", found, "run: gatepost key rewrap")
    return Check(name, "ok", "all hidden header values are encrypted")


def _check_allowed_networks(settings: Settings, store: Store) -> Iterator[Check]:
    for name, networks in settings.allow_networks.items():
        if store.read_now(partial(account_rows.load_named, name=name)) is None:
            do = "use a name that `gatepost account list` shows"
            yield Check("allow_networks", "warning", f"there is no account {name}", do)
        else:
            yield Check("allow_networks", "ok", f"{name} may send to {', '.join(networks) or 'no additional network'}")


def _check_scopes(settings: Settings, store: Store) -> Iterator[Check]:
    """Report scopes that have no effect: of a shared resource, or of a resource that is not in normal form."""
    shared = shared_resources.index(settings.shared_resources)
    for account in lookup.every(store):
        for scope in scope_rows.every(store, account.id):
            if shared.includes(scope.resource) and scope.status == "active":
                found = f"{account.name} defined {scope.name} for {scope.resource}, whose scopes the operator defines"
                yield Check("scopes", "warning", found, "the scope has no effect; ask the account to retire it")
            elif scope.name in shared.by_scope:
                found = f"{account.name} defined its own scope {scope.name}, so it cannot use the shared one"
                yield Check("scopes", "warning", found, "choose another name in shared_resources")
            elif resources.normal_form(scope.resource) != scope.resource:
                found = f"{scope.resource!r} of {account.name} ({scope.name}) is not in normal form"
                yield Check("scopes", "warning", found, "ask the account to redefine or retire it")


# --- the bus


def _check_nats(settings: Settings) -> Iterator[Check]:
    if not settings.nats:
        return
    from gatepost.ingest import nats_connection  # noqa: PLC0415 (an extra that may not be installed)

    if problem := asyncio.run(nats_connection.problem(settings.nats, settings.nats_stream)):
        do = "check the servers, the stream, the permissions and the consumer"
        yield Check("nats", "problem", f"cannot read from NATS: {problem}", do)
    else:
        yield Check("nats", "ok", f"NATS has the stream {settings.nats_stream}")


def _check_bus(settings: Settings) -> Iterator[Check]:
    if settings.kafka is None:
        return
    from gatepost.ingest import kafka  # noqa: PLC0415 (an extra that may not be installed)

    topics = settings.kafka
    if problem := kafka.problem(topics, settings.bus_config):
        do = "check the servers, the topics and the permissions, and the properties in bus_config"
        yield Check("bus", "problem", f"cannot read from Kafka: {problem}", do)
    else:
        yield Check("bus", "ok", f"Kafka has {', '.join(topics.topics)}, read by the group {topics.group}")


# --- the ports


class Identity(NamedTuple):
    """Identifies a service on this store."""

    instance: str
    keys: frozenset[str]  # ids of its signing keys


Response = dict[str, Any]


def _identity(settings: Settings) -> Identity | None:
    """Return the identity of a service on this store, or None if the store cannot be read."""
    with suppress(GatepostError, OSError):
        runtime = app.open_for_use(settings)
        with closing(runtime.store) as store:
            keys = store.read_now(lambda tx: frozenset(wrapped.key.id for wrapped in key_rows.load(tx)))
        return Identity(runtime.service.keys.instance, keys)
    return None


def _is_instance(response: Response, own: Identity) -> bool:
    return bool(response.get("instance") == own.instance)


def _has_key_of(response: Response, own: Identity) -> bool:
    keys = response.get("keys")
    kids = [key.get("kid") for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []
    return any(kid in own.keys for kid in kids if isinstance(kid, str))


def _check_port(
    name: str, host: str, port: int, own: Identity | None, path: str, is_own: Callable[[Response, Identity], bool]
) -> Check:
    problem = app.bind_problem(host, port)
    if not problem:
        return Check(name, "ok", f"{host}:{port} is free")
    if own is None:
        found = f"{host}:{port} is in use; whether by this service is unknown without the store"
        return Check(name, "warning", found, "make the store readable, or choose another port")
    if is_own(_get(host, port, path), own):
        return Check(name, "ok", f"{host}:{port} is in use by this service")
    return Check(
        name, "problem", f"cannot listen on {host}:{port}: {problem}; another program or store uses it",
        "choose another port, or stop the program that uses it",
    )  # fmt: skip


def _check_ready(settings: Settings, check: Check) -> Check:
    """Check whether the service is ready, if it uses the operations port."""
    host, port = settings.ops_host, settings.ops_port
    response = _get(host, port, "/readyz") if "in use" in check.found else {}
    if response.get("status") != "not ready":
        return check
    found = f"the service on {host}:{port} is not ready: {response.get('because')}"
    return Check(check.check, "warning", found, "wait")


def _get(host: str, port: int, path: str) -> Response:
    """Return the JSON response of the listener, or an empty one."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (only compared with)
    connection = http.client.HTTPConnection(target, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path, headers={"Host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"})
        return msgspec.json.decode(connection.getresponse().read(64 * 1024), type=dict[str, Any])
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return {}
    finally:
        connection.close()
