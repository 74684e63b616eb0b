"""The operator's view: JSON about all accounts, for the holder of an operator token. It only reads."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gatepost.accounts import Account, lookup
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.core.json_schema import identifier, integer, string
from gatepost.oauth import operator_tokens
from gatepost.store.transaction import Tx
from gatepost.web.context import Context, Handler
from gatepost.web.deliveries import TIME, Parameter, values_of
from gatepost.web.ops import metrics, operator_views
from gatepost.web.ops.operator_views import Json, Question
from gatepost.web.requests import Request
from gatepost.web.responses import Reply, json, problem

_PARAMETERS = {
    "account": Parameter(string(1, 63, expects="the name or id of an account")),
    "client": Parameter(identifier("cli")),
    "id": Parameter(identifier("evt")),
    "type": Parameter(string(1, 128)),
    "actor": Parameter(string(1, 256)),
    "subject": Parameter(string(1, 256)),
    "mentions": Parameter(string(1, 256)),
    "since": Parameter(TIME, convert=clock.parse_rfc3339),
    "until": Parameter(TIME, convert=clock.parse_rfc3339),
    "limit": Parameter(integer(1, operator_views.MAX_LIMIT), convert=int),
    "cursor": Parameter(string(1, 256, expects="a next_cursor of the same view")),
}


class View(NamedTuple):
    """A path: what it reads, the parameters that it requires, and those that it accepts."""

    read: Callable[[Tx, Question], Json | Refusal]
    required: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()


_PAGE = ("limit", "cursor")
OVERVIEW = "/operator/overview"
VIEWS: Mapping[str, View] = {
    OVERVIEW: View(operator_views.overview),
    "/operator/accounts": View(operator_views.list_accounts, (), _PAGE),
    "/operator/account": View(operator_views.show_account, ("account",)),
    "/operator/clients": View(operator_views.list_clients, ("account",), _PAGE),
    "/operator/scopes": View(operator_views.list_scopes, ("account",), _PAGE),
    "/operator/tokens": View(operator_views.list_tokens, ("account",), ("client", *_PAGE)),
    "/operator/entries": View(
        operator_views.list_entries,
        ("account",), ("type", "actor", "subject", "mentions", "since", "until", *_PAGE),
    ),
    "/operator/entry": View(operator_views.find_entry, ("id",), ("account", "cursor")),
}  # fmt: skip


def routes(page: metrics.Page) -> dict[str, Handler]:
    """Every path with its handler. `page` has the figures of the queue."""
    return {path: partial(_answer, view=view, page=page) for path, view in VIEWS.items()}


class _Viewed(NamedTuple):
    """The result of a view, the token that it was read with, and the account that it is about."""

    body: Json | Refusal
    token: str
    account: Account | None = None


async def _answer(context: Context, request: Request, *, view: View, page: metrics.Page) -> Reply:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        detail = "send an operator token: Authorization: Bearer gpo_…; `gatepost operator token` creates one"
        return problem(Refusal("invalid_token", detail), ("www-authenticate", "Bearer"))
    read = partial(_read, context=context, request=request, view=view, token=token.strip())
    forged = operator_tokens.read(context.service.keys.operator, token.strip()) is None
    viewed = None if forged else await context.store.read(read)  # forged tokens cost no transaction
    if viewed is None:
        detail = (
            "the operator token is not valid, has expired or was revoked; `gatepost operator token` creates another"
        )
        return problem(Refusal("invalid_token", detail), ("www-authenticate", 'Bearer error="invalid_token"'))
    body = viewed.body
    if isinstance(body, Refusal):
        reply = problem(body)
    elif request.path == OVERVIEW:
        reply = json(200, body | {"queue": _render_queue(await page.queue(), context)})
    else:
        reply = json(200, body)
    fields = reply.log_fields._replace(
        entry=ids.with_prefix("evt", viewed.token), account=viewed.account.id if viewed.account else ""
    )
    return reply._replace(log_fields=fields)


def _read(tx: Tx, context: Context, request: Request, view: View, token: str) -> _Viewed | None:
    """Read a view, or return None if the token is not accepted."""
    accepted = operator_tokens.verify(tx, context.service, token)
    if accepted is None:
        return None
    known = {name: _PARAMETERS[name] for name in (*view.required, *view.accepted)}
    values = values_of(request.query.encode("latin-1"), known)
    if isinstance(values, Refusal):
        return _Viewed(values, accepted)
    for name in view.required:
        if name not in values:
            return _Viewed(Refusal("invalid_request", f"{name}: this parameter is required", name), accepted)
    account = None
    if "account" in values:
        account = lookup.find(tx, values["account"])
        if account is None:
            return _Viewed(Refusal("not_found", "account: no account has this name or id", "account"), accepted)
    return _Viewed(view.read(tx, Question(context.service, account, values)), accepted, account)


def _render_queue(queue: metrics.QueueFigures, context: Context) -> Json | None:
    """The figures of /metrics. None if the store could not count them."""
    if queue is metrics.UNKNOWN:
        return None
    return {
        **{state: int(number) for state, number in queue.states.items()},
        "counted_to": metrics.MAX_COUNTED,
        "age_seconds": round(queue.age(context.now()), 3),
        "replays_running": int(queue.replays),
    }
