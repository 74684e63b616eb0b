"""The composition root: the only file that picks a backend, and the first start of an empty store."""

import errno
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeVar
from urllib.parse import urlsplit

import msgspec

from gatepost import accounts
from gatepost.accounts import account_rows, server_keys
from gatepost.core import clock, files
from gatepost.core.errors import BadSetting, NoStore, Refused
from gatepost.core.logging import is_configured, log
from gatepost.core.metrics import observe_commit
from gatepost.core.secrets import Box, ServerKeys, new_master_key, parse_master_keys
from gatepost.egress.address_guard import Policy
from gatepost.egress.jwks_cache import JwksCache
from gatepost.ledger import chains
from gatepost.ledger.entries import TYPES
from gatepost.oauth import account_admin, key_rotation
from gatepost.oauth.account_admin import CreatedAccount
from gatepost.oauth.service import Service
from gatepost.oauth.shared_resources import index
from gatepost.oauth.signing_keys import KeyRing
from gatepost.settings import PREFIX, Settings
from gatepost.store import marker, presence
from gatepost.store.interface import Store
from gatepost.store.lost import LOST, LOST_CODE, end_process
from gatepost.store.schema_check import schema_problem
from gatepost.store.sqlite import SqliteStore
from gatepost.store.transaction import Tx
from gatepost.webhooks.fanout import create_deliveries

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

T = TypeVar("T")


class Runtime(NamedTuple):
    """An open store and the service on it, as a command or a process uses them."""

    store: Store
    service: Service
    created: CreatedAccount | None = None  # the first account, if this start created it
    migrated: tuple[str, ...] = ()  # the migrations that this start applied
    checkpoints: Path | None = None  # the file that checkpoints are written to


COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_observe_commit = partial(observe_commit, known=TYPES)


def end_after_lost_write(error: BaseException) -> Never:
    """End the process without responding to its callers: the disk did not keep what was written."""
    if is_configured():
        with suppress(Exception):  # the process must end even if logging fails
            log.critical("disk failed", error=str(error), because=LOST)
        os._exit(LOST_CODE)
    end_process(error)


def open_store(settings: Settings) -> Store:
    """Open the store that the settings name: PostgreSQL if they name a database, otherwise SQLite."""
    if settings.database:
        try:
            from gatepost.store.postgres import PostgresStore  # noqa: PLC0415 (an extra that may not be installed)
        except ImportError:
            raise BadSetting("database: PostgreSQL needs an extra; run: pip install 'gatepost[postgres]'") from None
        return PostgresStore(
            settings.database, clock.now, create_deliveries,
            listen_url=settings.database_listen, follow=True, on_commit=_observe_commit,
        )  # fmt: skip
    file = settings.sqlite_file
    _check_readable(file)
    return SqliteStore(file, clock.now, create_deliveries, on_commit=_observe_commit, lost=end_after_lost_write)


def _check_readable(file: Path) -> None:
    """Raise an error that names the file. The error of SQLite would not."""
    if file.exists() and not os.access(file, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


def move(settings: Settings, target: str, progress: Callable[[str, int], AbstractContextManager[Any]]) -> Any:
    """Copy the SQLite store of these settings into an empty PostgreSQL database."""
    store = open_store(msgspec.structs.replace(settings, database=target))
    with closing(store):
        store.migrate()
    from gatepost.store import sqlite_to_postgres  # noqa: PLC0415 (an extra that may not be installed)
    from gatepost.store.postgres_connection import open_database  # noqa: PLC0415 (the same extra)

    file = settings.sqlite_file
    with open_database(target) as database, progress("rows", sqlite_to_postgres.count(file)) as advance:
        return sqlite_to_postgres.to_postgres(file, database, advance)


def distribute(database: str, *, dry_run: bool) -> Any:
    """Distribute the store with Citus, and return the plan. With `dry_run`, change nothing."""
    import psycopg  # noqa: PLC0415 (the same extra)

    from gatepost.store import distribute  # noqa: PLC0415 (an extra that may not be installed)
    from gatepost.store.postgres_connection import open_database, unavailable  # noqa: PLC0415 (the same extra)

    try:
        with open_database(database) as connection:
            plan = distribute.plan(connection)
            if not dry_run:
                distribute.apply(connection, plan)
    except psycopg.Error as error:
        raise unavailable(error) from error
    return plan


def run_statements(database: str, statements: list[str]) -> None:
    """Run an operator's statements on the PostgreSQL database, in one transaction."""
    import psycopg  # noqa: PLC0415 (an extra that may not be installed)

    from gatepost.store import lock_retries  # noqa: PLC0415 (the same extra)
    from gatepost.store.postgres_connection import open_database  # noqa: PLC0415 (the same extra)

    def run() -> None:
        with connection.transaction():
            lock_retries.set_lock_timeout(connection)
            for statement in statements:
                connection.execute(statement.encode())

    try:
        with open_database(database) as connection:
            lock_retries.retry(run, "the change")
    except psycopg.Error as error:
        raise Refused(f"PostgreSQL refused the statements: {str(error).strip()}") from None


def traces(environment: Mapping[str, str] = os.environ) -> "Traces | None":
    """Return the traces of one process, or None unless OpenTelemetry's environment variables name a collector."""
    if not any(environment.get(name) for name in COLLECTORS) or environment.get("OTEL_SDK_DISABLED") == "true":
        return None
    try:
        from gatepost.core import tracing  # noqa: PLC0415 (an extra that may not be installed)
    except ImportError:
        log.warning("no traces are exported; install the extra: pip install 'gatepost[otel]'")
        return None
    return tracing.Traces(tracing.exporting())


def open_for_use(settings: Settings) -> Runtime:
    """Open a store that exists, for a command or a child process."""
    if not settings.database and not settings.sqlite_file.exists():
        marker.check(settings.key_file, settings.sqlite_file, empty=True)
        raise NoStore(
            f"there is no store in {settings.data_directory}; start the service once (gatepost serve), "
            "or point --data or GATEPOST_DATA at the right directory"
        )
    store = open_store(settings)
    try:
        problem = schema_problem(store.dialect, store.applied())
        if problem:
            raise NoStore(problem)
        master = Box(master_keys(settings))
        keys = store.read_now(lambda tx: server_keys.open_keys(tx, master, make=False))
    except BaseException:
        store.close()
        raise
    return Runtime(store, service_of(settings, keys))


def open_for_start(settings: Settings) -> Runtime:
    """Open the store for `serve` or `store migrate`: migrate the schema, and create what an empty store lacks."""
    first = not settings.database and is_empty(settings.sqlite_file)
    if not settings.database:
        marker.check(settings.key_file, settings.sqlite_file, empty=first)
        _make_directory(settings.data_directory)
    if first and not (settings.master_key or settings.master_key_file or settings.key_file.exists()):
        write_key_file(settings.key_file, new_master_key())
    master = Box(master_keys(settings))
    store = open_store(settings)
    try:
        migrated = tuple(store.migrate())
        keys = store.run_now(lambda tx: server_keys.open_keys(tx, master, make=True))
        service = service_of(settings, keys)
        created = store.run_now(lambda tx: _complete(tx, service, create_account=not settings.database))
        if not settings.database:
            _mark(settings)
    except BaseException:
        store.close()
        raise
    return Runtime(store, service, created, migrated, settings.checkpoints_file)


def service_lock(settings: Settings) -> AbstractContextManager[None]:
    """Return the lock that a running service holds, so that `store restore` does not replace the store meanwhile."""
    if settings.database:
        return nullcontext()
    _make_directory(settings.data_directory)
    return presence.shared(settings.data_directory)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None


def is_empty(file: Path) -> bool:
    """Return whether there is no store: no file, or one without a schema."""
    if not file.exists() or not file.stat().st_size:
        return True
    _check_readable(file)
    with closing(SqliteStore(file, clock.now, create_deliveries)) as store:
        return not store.applied()


def _mark(settings: Settings) -> None:
    try:
        marker.put(settings.key_file, settings.sqlite_file)
    except OSError as error:  # the key may be on a volume that cannot be written
        log.warning(
            "could not write the marker beside the master key",
            file=str(marker.path_of(settings.key_file)),
            error=str(error),
        )


def _complete(tx: Tx, service: Service, *, create_account: bool) -> CreatedAccount | None:
    """Create what a new store, or a store of an earlier release, lacks. Returns the first account, if it is created."""
    account_admin.create_operator(tx, service)
    for account in chains.create_missing(tx, service.keys.seal):
        log.error("the chain record of an account is missing; its ledger is not sealed", account=account)
    key_rotation.advance(tx, service, key_rotation.BY_SERVICE)
    if not create_account or len(account_rows.page(tx, "", 2)) > 1:
        return None
    return account_admin.create(tx, service, accounts.FIRST, {})


def welcome(created: CreatedAccount | None, file: Path | None = None) -> str:
    """Return what the first start prints, including the secret unless it was written to a file."""
    if created is None or created.secret is None:
        return ""
    secret = f"in {file}" if file else created.secret.reveal()
    note = "Move that file to a safe place." if file else "This secret is shown only once."
    return (
        f"First start: created the account `{created.account.name}` and its first client:\n"
        f"  client_id      {created.client}\n"
        f"  client_secret  {secret}\n"
        f"{note} The client may do everything in its account.\n"
    )


def write_first_client(settings: Settings, created: CreatedAccount | None, *, terminal: bool) -> Path | None:
    """Write the first client to a file, unless it may be printed: to a terminal or with --dev, but never into logs."""
    if created is None or created.secret is None or terminal or settings.dev:
        return None
    path = settings.data_directory / "first-client.json"
    client = {"account": created.account.id, "client_id": created.client, "client_secret": created.secret.reveal()}
    write_key_file(path, msgspec.json.encode(client).decode())
    return path


def service_of(settings: Settings, keys: ServerKeys) -> Service:
    """Return the service with these settings and keys."""
    return Service(
        settings.issuer, keys, KeyRing(keys.data), index(settings.shared_resources), settings.dev,
        policy(settings), JwksCache(), {name: policy(settings, name) for name in settings.allow_networks},
        settings.protocol,
    )  # fmt: skip


def policy(settings: Settings, account: str = "") -> Policy:
    """Return where requests for an account may go: never to Gatepost itself, by address or by name."""
    base = urlsplit(settings.issuer)
    own = (base.hostname or "", base.port or (443 if base.scheme == "https" else 80))
    return Policy(
        tuple(ip_network(network) for network in settings.allow_networks.get(account, ())),
        settings.dev,
        ((settings.host, settings.port), (settings.ops_host, settings.ops_port), own),
        settings.egress_proxy,
    )


def master_keys(settings: Settings) -> list[bytes]:
    """Return the master keys from the setting, or else from the key file, which only its owner may read."""
    if settings.master_key:
        return parse_master_keys(settings.master_key)
    path = settings.key_file
    if not path.exists():
        is_new = settings.database or (settings.master_key_file and not settings.sqlite_file.exists())
        create = ". For a new store, create one: openssl rand -base64 32" if is_new else ""
        raise BadSetting(
            f"the master key is missing: set {PREFIX}MASTER_KEY, or write the key to {path}. An existing store or "
            f"backup needs the key that it was encrypted with{create}"
        )
    if path.stat().st_mode & 0o077:
        raise BadSetting(f"{path} can be read by other users; run: chmod 600 {path}")
    return parse_master_keys(path.read_text("ascii"))


def write_key_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, f"{text}\n".encode(), keep_owner=True)


def bind_problem(host: str, port: int) -> str:
    """Return why a listener cannot use the port, or "" if it is free. The server would silently share the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""
