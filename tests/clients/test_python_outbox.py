"""Publishing in the caller's own transaction with each driver: committed events are published, others are not."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from gatepost.ledger import entries, publishable
from gatepost_client import events, publish, publish_async
from tests.service import Service
from tests.waiting import wait_until

DATA = {"words": "Grüße, 世界", "amount": 12.5, "list": [1, None, True], "quote": 'it\'s 100% "so"'}


@pytest.fixture(scope="module")
def account(postgres_gatepost: Service) -> tuple[str, str]:
    identifier, _ = postgres_gatepost.account("outbox-client")
    return "outbox-client", identifier


def sqlalchemy_url(service: Service, driver: str) -> str:
    return service.database.replace("postgresql://", f"postgresql+{driver}://")


def sync_psycopg(service: Service, add: Callable[[Any], None], commit: bool) -> None:
    with psycopg.connect(service.database) as connection:
        add(connection)
        connection.commit() if commit else connection.rollback()


def sync_cursor(service: Service, add: Callable[[Any], None], commit: bool) -> None:
    with psycopg.connect(service.database) as connection:
        with connection.cursor() as cursor:
            add(cursor)
        connection.commit() if commit else connection.rollback()


def sync_core(service: Service, add: Callable[[Any], None], commit: bool) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(service, "psycopg"))
    with engine.connect() as connection:
        add(connection)
        connection.commit() if commit else connection.rollback()
    engine.dispose()


def sync_orm(service: Service, add: Callable[[Any], None], commit: bool) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(service, "psycopg"))
    with Session(engine) as session:
        add(session)
        session.commit() if commit else session.rollback()
    engine.dispose()


Add = Callable[[Any], Awaitable[None]]


async def async_psycopg(service: Service, add: Add, commit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(service.database) as connection:
        await add(connection)
        await (connection.commit() if commit else connection.rollback())


async def async_asyncpg(service: Service, add: Add, commit: bool) -> None:
    connection = await asyncpg.connect(service.database)
    transaction = connection.transaction()
    await transaction.start()
    await add(connection)
    await (transaction.commit() if commit else transaction.rollback())
    await connection.close()


async def async_pool(service: Service, add: Add, commit: bool) -> None:
    """A pool whose connections encode JSON by themselves, as many applications set them up."""

    async def encode_json(connection: Any) -> None:
        await connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    pool = asyncpg.create_pool(service.database, min_size=1, max_size=1, init=encode_json)
    async with pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await add(connection)
        await (transaction.commit() if commit else transaction.rollback())


async def async_core(service: Service, add: Add, commit: bool) -> None:
    engine = create_async_engine(asyncpg_url(service))
    async with engine.connect() as connection:
        await add(connection)
        await (connection.commit() if commit else connection.rollback())
    await engine.dispose()


async def async_orm(service: Service, add: Add, commit: bool) -> None:
    engine = create_async_engine(asyncpg_url(service))
    async with AsyncSession(engine) as session:
        await add(session)
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


async def async_orm_psycopg(service: Service, add: Add, commit: bool) -> None:
    engine = create_async_engine(sqlalchemy_url(service, "psycopg"))
    async with AsyncSession(engine) as session:
        await add(session)
        await (session.commit() if commit else session.rollback())
    await engine.dispose()


def asyncpg_url(service: Service) -> str:
    parts = urlsplit(service.database)
    query = parse_qs(parts.query)
    return f"postgresql+asyncpg://{parts.username}@{parts.path}?host={query['host'][0]}&port={query['port'][0]}"


SYNC = [sync_psycopg, sync_cursor, sync_core, sync_orm]
ASYNC = [async_psycopg, async_asyncpg, async_pool, async_core, async_orm, async_orm_psycopg]


@pytest.mark.parametrize("kind", [*SYNC, *ASYNC], ids=lambda kind: kind.__name__)
def test_a_committed_event_is_published(postgres_gatepost: Service, account: tuple[str, str], kind: Any) -> None:
    name, identifier = account
    type_ = f"invoice.{kind.__name__}"

    def make(number: int) -> Callable[[Any], Any]:
        function = publish_async if kind in ASYNC else publish
        return lambda connection: function(
            connection, account=name, type=type_, data=DATA | {"number": number}, id=f"{type_} {number}"
        )

    for number, commit in ((1, False), (2, True)):
        done = kind(postgres_gatepost, make(number), commit)
        if kind in ASYNC:
            asyncio.run(done)

    def published() -> list[Any]:
        found = [each for each in postgres_gatepost.entries(identifier) if each["type"] == type_]
        return [each["data"] for each in found]

    wait_until(lambda: bool(published()))
    assert published() == [DATA | {"number": 2}]


def test_the_wrong_function_says_which_one_is_right(postgres_gatepost: Service) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_gatepost.database) as connection:
            with pytest.raises(TypeError, match="await publish_async"):
                publish(connection, account="a", type="a.b", data=1)
        connection = await asyncpg.connect(postgres_gatepost.database)
        with pytest.raises(TypeError, match="await publish_async"):
            publish(connection, account="a", type="a.b", data=1)
        await connection.close()
        with psycopg.connect(postgres_gatepost.database) as synchronous:
            with pytest.raises(TypeError, match=r"call publish\("):
                await publish_async(synchronous, account="a", type="a.b", data=1)
            synchronous.rollback()

    asyncio.run(run())


BAD = [
    ("paid", 1, None, "type: must be a dotted lower-case name"),
    ("oauth.token.mine", 1, None, "type: oauth.token.mine is reserved"),
    ("a.b", float("nan"), None, "data: must be representable as JSON"),
    ("a.b", {1: "a", "1": "b"}, None, "data: must be representable as JSON"),
    ("a.b", object(), None, "data: must be representable as JSON"),
    ("a.b", 1 << 63, None, "data: contains a number beyond 64 bits"),
    ("a.b", "a\0b", None, "data: contains a NUL"),
    ("a.b", {"\ud800": 1}, None, "data: contains a NUL or an unpaired surrogate"),
    ("a.b", "x" * (256 * 1024), None, "data: at most 262144 bytes"),
    ("a.b", 1, "", "id: must be a string of 1 to 256"),
    ("a.b", 1, "a\nb", "id: must be a string of 1 to 256"),
]


@pytest.mark.parametrize(("type_", "data", "event_id", "message"), BAD)
def test_what_cannot_be_published_is_refused_before_it_is_sent(
    type_: str, data: Any, event_id: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        publish(None, account="a", type=type_, data=data, id=event_id)


def test_the_rules_are_those_of_the_service() -> None:
    assert entries.MAX_DATA == events.MAX_DATA
    assert entries.RESERVED == events.RESERVED
    assert entries.PLATFORM_TYPE.pattern == events.TYPE.pattern
    for type_, data, event_id, _ in BAD:
        if type_ != "a.b" or event_id is not None:
            assert not isinstance(publishable.event(type_, data, event_id), publishable.Event)
