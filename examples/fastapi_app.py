"""A FastAPI application with gatepost-client: a protected route, events in its own transaction, and webhooks.

Run it with `granian --interface asgi examples.fastapi_app:app` and the environment variables that it reads. `DATABASE`
is the PostgreSQL database of Gatepost, as `postgresql+asyncpg://…`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from gatepost_client import AccessToken, TokenVerifier, VerificationError, publish_async, verify_webhook
from gatepost_client.starlette import require

engine = create_async_engine(os.environ["DATABASE"])
verifier = TokenVerifier(os.environ["GATEPOST"], os.environ["RESOURCE"])
Payer = Annotated[AccessToken, Depends(require(verifier, "invoices:pay", base_url=os.environ["RESOURCE"]))]


class Base(DeclarativeBase): ...


class Invoice(Base):
    __tablename__ = "invoices"
    number: Mapped[int] = mapped_column(primary_key=True)
    paid_by: Mapped[str]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/invoices/{number}/pay")
async def pay(number: int, token: Payer) -> dict[str, int]:
    async with AsyncSession(engine) as session, session.begin():  # the invoice and the event, or neither
        session.add(Invoice(number=number, paid_by=token.subject))
        event = {"account": os.environ["ACCOUNT"], "type": "invoice.paid", "id": f"invoice-{number}-paid"}
        await publish_async(session, data={"invoice": number}, **event)
    return {"paid": number}


@app.post("/webhooks", status_code=204)
async def webhooks(request: Request) -> None:
    try:
        event = verify_webhook(os.environ["WEBHOOK_SECRET"], request.headers, await request.body())
    except VerificationError as error:
        raise HTTPException(400, str(error)) from None
    print("received", event["id"], event["data"])  # an application stores the id: it may arrive more than once
