"""The composition root: the only file that picks a backend, and the first start of an empty store."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Never, TypeVar
from urllib.parse import urlsplit

import msgspec

from gatepost import accounts
from gatepost.accounts import account_rows
from gatepost.accounts import administration as account_units
from gatepost.accounts.administration import Created
from gatepost.core import clock
from gatepost.core.errors import BadSetting
from gatepost.core.logging import is_configured, log
from gatepost.core.metrics import observe_commit
from gatepost.core.secrets import Box, ServerKeys, new_master_key, parse_master_keys
from gatepost.egress.address_guard import Policy
from gatepost.egress.jwks_cache import Foreign
from gatepost.ledger import chains
from gatepost.ledger.entries import TYPES
from gatepost.oauth import key_lifecycle as key_units
from gatepost.oauth.service import Service
from gatepost.oauth.shared_resources import index
from gatepost.oauth.signing_keys import Ring
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


class Opened(NamedTuple):
    store: Store
    service: Service
    created: Created | None = None  # the first account, when this start made it
    migrated: tuple[str, ...] = ()  # what this start applied
    checkpoints: Path | None = None  # the file to write them to


_watch = partial(observe_commit, known=TYPES)


def end_after_lost_write(error: BaseException) -> Never:
    """End the process without answering its callers: the disk did not keep what was written."""
    if is_configured():
        with suppress(Exception):  # whatever becomes of the line
            log.critical("disk failed", error=str(error), because=LOST)
        os._exit(LOST_CODE)
    end_process(error)


def open_store(settings: Settings) -> Store:
    if settings.database:
        try:
            from gatepost.store.postgres import PostgresStore  # noqa: PLC0415 (an extra that may not be installed)
        except ImportError:
            raise BadSetting("for PostgreSQL install the extra: pip install 'gatepost[postgres]'") from None
        return PostgresStore(settings.database, clock.now, create_deliveries, follow=True, watch=_watch)
    return SqliteStore(settings.sqlite_file, clock.now, create_deliveries, watch=_watch, lost=end_after_lost_write)


def move(settings: Settings, target: str, progress: Callable[[str, int], AbstractContextManager[Any]]) -> Any:
    """The SQLite store of these settings into an empty PostgreSQL database."""
    store = open_store(msgspec.structs.replace(settings, database=target))
    from gatepost.store import sqlite_to_postgres as moving  # noqa: PLC0415 (an extra that may not be installed)

    try:
        store.migrate()
    finally:
        store.close()
    import psycopg  # noqa: PLC0415 (the same extra)

    with psycopg.connect(target) as database, progress("rows", moving.count(settings.sqlite_file)) as passed:
        return moving.to_postgres(settings.sqlite_file, database, passed)


def run_statements(database: str, statements: list[str]) -> None:
    """Statements of an operator on the PostgreSQL database, in one transaction."""
    import psycopg  # noqa: PLC0415 (an extra that may not be installed)

    try:
        with psycopg.connect(database) as connection:
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.Error as error:
        raise BadSetting(f"PostgreSQL refused: {str(error).strip()}") from None


def traces(environment: Mapping[str, str] = os.environ) -> "Traces | None":
    """For one process. None unless the environment names a collector, as OpenTelemetry has it."""
    if not any(environment.get(name) for name in COLLECTORS) or environment.get("OTEL_SDK_DISABLED") == "true":
        return None
    try:
        from gatepost.core import tracing  # noqa: PLC0415 (an extra that may not be installed)
    except ImportError:
        log.warning("there will be no traces: for them install the extra: pip install 'gatepost[otel]'")
        return None
    return tracing.Traces(tracing.exporting())


COLLECTORS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def open_for_use(settings: Settings) -> Opened:
    """For a command or a child process: the store must be there, made by a start before."""
    if not settings.database and not settings.sqlite_file.exists():
        raise BadSetting(
            f"there is no store in {settings.data_directory}; start the service once (gatepost serve), "
            "or point --data or GATEPOST_DATA at the right directory"
        )
    store = open_store(settings)
    try:
        problem = schema_problem(store.dialect, store.applied())
        if problem:
            raise BadSetting(problem)
        master = Box(master_keys(settings, first_start=False))
        server_keys = store.read_now(lambda tx: key_units.open_server_keys(tx, master, make=False))
    except BaseException:
        store.close()
        raise
    return Opened(store, service_of(settings, server_keys))


def open_for_start(settings: Settings) -> Opened:
    """For `serve` and `store migrate`: migrate, and make what an empty store lacks."""
    first = not settings.database and is_empty(settings.sqlite_file)
    if not settings.database:
        marker.check(settings.key_file, settings.sqlite_file, empty=first)
        settings.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    master = Box(master_keys(settings, first_start=first))
    store = open_store(settings)
    try:
        migrated = tuple(store.migrate())
        server_keys = store.run_now(lambda tx: key_units.open_server_keys(tx, master, make=True))
        service = service_of(settings, server_keys)
        created = store.run_now(lambda tx: _first_start(tx, service, make=not settings.database))
        if not settings.database:
            _mark(settings)
    except BaseException:
        store.close()
        raise
    return Opened(store, service, created, migrated, settings.checkpoints_file)


def present(settings: Settings) -> AbstractContextManager[None]:
    """For a service, while it runs: the store is not replaced meanwhile."""
    if settings.database:
        return nullcontext()
    settings.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return presence.present(settings.data_directory)


def is_empty(file: Path) -> bool:
    """Whether there is no store: no file, or one in which nothing was ever made."""
    if not file.exists() or not file.stat().st_size:
        return True
    store = SqliteStore(file, clock.now, create_deliveries)
    try:
        return not store.applied()
    finally:
        store.close()


def _mark(settings: Settings) -> None:
    try:
        marker.put(settings.key_file, settings.sqlite_file)
    except OSError as error:  # the key may be on a volume that cannot be written
        log.warning("no marker beside the key", file=str(marker.path_of(settings.key_file)), error=str(error))


def _first_start(tx: Tx, service: Service, *, make: bool) -> Created | None:
    account_units.create_operator(tx, service)
    for account in chains.adopt(tx, service.keys.seal):
        log.error("the chain record of an account was removed; its ledger is not sealed", account=account)
    key_units.keep(tx, service, key_units.by_service())
    if not make or len(account_rows.page(tx, "", 2)) > 1:
        return None
    return account_units.create(tx, service, accounts.FIRST, {})


FIRST_CLIENT = "first-client.json"


def welcome(created: Created | None, kept_in: Path | None = None) -> str:
    """What the first start prints. The secret is part of it unless it was written to a file."""
    if created is None or created.secret is None:
        return ""
    secret = f"in {kept_in}" if kept_in else created.secret.reveal()
    note = "Move that file to a safe place." if kept_in else "This secret is shown only once."
    return (
        f"This is the first start. The account `{created.account.name}` was made, and its first client:\n"
        f"  client_id      {created.client}\n"
        f"  client_secret  {secret}\n"
        f"{note} The client may do everything in its account.\n"
    )


def keep_first_client(settings: Settings, created: Created | None, *, terminal: bool) -> Path | None:
    """Where the first secret is, unless it may be printed: to a terminal, or with --dev, but not into logs."""
    if created is None or created.secret is None or terminal or settings.dev:
        return None
    path = settings.data_directory / FIRST_CLIENT
    client = {"account": created.account.id, "client_id": created.client, "client_secret": created.secret.reveal()}
    write_key_file(path, msgspec.json.encode(client).decode())
    return path


def service_of(settings: Settings, server_keys: ServerKeys) -> Service:
    return Service(
        settings.issuer, server_keys, Ring(server_keys.data), index(settings.shared_resources), settings.dev,
        policy(settings), Foreign(), {name: policy(settings, name) for name in settings.allow_networks},
    )  # fmt: skip


def policy(settings: Settings, account: str = "") -> Policy:
    """Where requests for an account may go: never to ourselves, by address or by our own name."""
    base = urlsplit(settings.issuer)
    ours = (base.hostname or "", base.port or (443 if base.scheme == "https" else 80))
    return Policy(
        tuple(ip_network(network) for network in settings.allow_networks.get(account, ())),
        settings.dev,
        ((settings.host, settings.port), (settings.ops_host, settings.ops_port), ours),
        settings.egress_proxy,
    )


def master_keys(settings: Settings, *, first_start: bool) -> list[bytes]:
    """From the setting, else from the key file, which is made only with a new store in its own data directory."""
    if settings.master_key:
        return parse_master_keys(settings.master_key)
    path = settings.key_file
    if not path.exists():
        if not first_start or settings.master_key_file:
            where = "" if settings.database else f" the store in {settings.data_directory} was made with one;"
            raise BadSetting(
                f"there is no master key:{where} set {PREFIX}MASTER_KEY, or put the key into {path}. "
                "A new one: openssl rand -base64 32"
            )
        write_key_file(path, new_master_key())
    _check_permissions(path)
    return parse_master_keys(path.read_text("ascii"))


def write_key_file(path: Path, text: str) -> None:
    """Readable by its owner alone from the first moment; in place of the old one at once, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _check_permissions(path: Path) -> None:
    if path.stat().st_mode & 0o077:
        raise BadSetting(f"{path} can be read by others; run: chmod 600 {path}")
