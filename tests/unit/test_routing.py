"""Every statement names the account whose rows it reads or writes, so that Citus sends it to one shard.

The texts are parsed by PostgreSQL's own grammar. A statement about several accounts is in a list, with the reason.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pglast import ast, parse_sql

from gatepost.store import sql_loader
from gatepost.store.shards import BY_ACCOUNT
from gatepost.webhooks import listing_query
from gatepost.webhooks.listing_query import DeliveryFilter, PageRequest

# Statements about all accounts. While a database node is down, they are about the accounts on the others.
REACHABLE = {
    "chains_behind": "ledgers whose tree is behind, after an upgrade",
    "chains_to_record": "the heads of all ledgers are recorded in the operator's",
    "checkpoints_after": "the operations plane lists all checkpoints",
    "count_queue": "metrics of all endpoints",
    "count_replays": "metrics of all replays",
    "delete_recovered_health": "upkeep",
    "endpoints_not_active": "deliveries of inactive endpoints have to end",
    "forget_answers": "upkeep",
    "forget_codes": "upkeep",
    "forget_consents": "upkeep",
    "forget_endpoint_tallies": "upkeep",
    "forget_families": "upkeep",
    "forget_interactions": "upkeep",
    "forget_pushed": "upkeep",
    "forget_revoked": "upkeep",
    "forget_tallies": "upkeep",
    "lanes": "a worker looks for deliveries of all accounts",
    "old_endpoint_minutes": "upkeep",
    "old_minutes": "upkeep",
    "open_attempts": "the attempts of a worker that is gone",
    "recovered_health": "upkeep",
    "retry_afters": "a worker has to know every Retry-After",
    "running_replays": "a worker continues the replays of all accounts",
    "take_endpoint_counts": "upkeep",
    "unsealed_accounts": "ledgers with something to seal",
}
# Statements on the coordinator that leave out the same accounts, because the unit then writes to their nodes.
BEFORE_ENTRIES = {
    "end_failures": "an entry of the account has their number",
    "end_refusals": "an entry of the account has their number",
}
# Statements about all accounts that would be wrong without some of them, so they fail while a node is down.
WHOLE = {
    "accounts_without_chain": "verification must not leave out an account",
    "any_chain": "whether the ledgers were ever sealed",
    "chains_without_account": "verification must not leave out an account",
    "delete_all_interactions": "a restore ends what was open",
    "delete_all_pushed": "a restore ends what was open",
    "entry_accounts": "verification must not leave out an account",
    "seal_accounts": "verification must not leave out an account",
}


def _kind(node: Any) -> str:
    return type(node).__name__


class Scope:
    """One level of a statement: the tables there, and which columns `account` are equal to each other or to a value."""

    def __init__(self, outer: "Scope | None" = None) -> None:
        self.outer = outer
        self.tables: dict[str, str] = {}  # alias → table
        self.ctes: set[str] = set(outer.ctes) if outer else set()
        self.given: set[str] = set(outer.given) if outer else set()  # of these, those whose account is a parameter
        self.equal: list[tuple[Any, Any]] = []

    def find(self, alias: str) -> "Scope | None":
        return self if alias in self.tables else self.outer.find(alias) if self.outer else None

    def term(self, node: Any) -> Any:
        """A value that tells an account: True for a parameter, or a table by its scope and alias."""
        if _kind(node) == "TypeCast":
            return self.term(node.arg)
        if _kind(node) == "ParamRef":
            return node.number == 1
        if _kind(node) == "ColumnRef":
            *alias, column = (getattr(each, "sval", "*") for each in node.fields)
            return self.account_of(alias[0] if alias else "", column)
        return None

    def account_of(self, alias: str, column: str) -> Any:
        if not alias and len(self.tables) == 1:
            [alias] = self.tables
        scope = self.find(alias)
        if scope is None or column != "account":
            return None
        return True if scope.tables[alias] in scope.given else (id(scope), alias)

    def bound(self) -> set[Any]:
        """The tables whose account is known, also those of the levels around this one."""
        pairs = self.all_pairs()
        bound: set[Any] = {True}
        while more := {two for one, two in pairs + [pair[::-1] for pair in pairs] if one in bound} - bound:
            bound |= more
        return bound

    def all_pairs(self) -> list[tuple[Any, Any]]:
        return self.equal + (self.outer.all_pairs() if self.outer else [])


DISTRIBUTED = {*BY_ACCOUNT, "entries_pruned_by_row", "deliveries_pruned_by_row"}  # and views of them


def unrouted(text: str) -> list[str]:
    """The distributed tables that a statement uses without an account; and the other tables, if it uses both kinds."""
    numbers: dict[str, int] = {"account": 1}
    text = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", text)
    text = text.replace("%b", "$1")
    [parsed] = parse_sql(text)
    used: set[str] = set()
    unbound = list(_unbound(parsed.stmt, None, used))
    local = used - DISTRIBUTED
    return unbound + (sorted(local) if local != used else [])


def _unbound(statement: Any, outer: Scope | None, used: set[str]) -> Iterator[str]:
    scope = Scope(outer)
    for cte in statement.withClause.ctes if statement.withClause else ():
        scope.ctes.add(cte.ctename)
        yield from _unbound(cte.ctequery, scope, used)
        first = (cte.ctequery.targetList or [None])[0]
        if cte.ctename == "given" and first is not None and scope.term(first.val) is True:
            scope.given.add("given")
    subqueries: list[Any] = []
    if _kind(statement) == "SelectStmt" and statement.larg:
        yield from _unbound(statement.larg, scope, used)
        yield from _unbound(statement.rarg, scope, used)
        return
    if _kind(statement) == "InsertStmt":
        yield from _unbound_insert(statement, scope, used)
        return
    sources = list(getattr(statement, "fromClause", None) or []) + list(getattr(statement, "usingClause", None) or [])
    if _kind(statement) != "SelectStmt":
        sources.append(statement.relation)
    for source in sources:
        _add_source(scope, source, subqueries)
    _add_conditions(scope, statement.whereClause)
    _find_subqueries([statement.whereClause, getattr(statement, "targetList", None)], subqueries)
    bound = scope.bound()
    for alias, table in scope.tables.items():
        if table in scope.ctes:
            continue
        used.add(table)
        if table in DISTRIBUTED and (id(scope), alias) not in bound:
            yield table
    for subquery in subqueries:
        yield from _unbound(subquery, scope, used)


def _unbound_insert(statement: Any, scope: Scope, used: set[str]) -> Iterator[str]:
    table = statement.relation.relname
    used.add(table)
    columns = [column.name for column in statement.cols]
    rows = statement.selectStmt.valuesLists or ()
    if table in BY_ACCOUNT and not (rows and all(scope.term(row[columns.index("account")]) is True for row in rows)):
        yield table


def _add_source(scope: Scope, source: Any, subqueries: list[Any]) -> None:
    if _kind(source) == "RangeVar":
        scope.tables[source.alias.aliasname if source.alias else source.relname] = source.relname
    elif _kind(source) == "JoinExpr":
        _add_source(scope, source.larg, subqueries)
        _add_source(scope, source.rarg, subqueries)
        _add_conditions(scope, source.quals)
        _find_subqueries([source.quals], subqueries)
    elif _kind(source) == "RangeSubselect" and not source.subquery.valuesLists:
        subqueries.append(source.subquery)


def _add_conditions(scope: Scope, condition: Any) -> None:
    """Equalities of accounts that hold for every row: those that are connected by AND."""
    if _kind(condition) == "BoolExpr" and condition.boolop.name == "AND_EXPR":
        for part in condition.args:
            _add_conditions(scope, part)
    elif _kind(condition) == "A_Expr" and condition.kind.name == "AEXPR_OP" and condition.name[0].sval == "=":
        terms = (scope.term(condition.lexpr), scope.term(condition.rexpr))
        if all(terms):
            scope.equal.append(terms)


def _find_subqueries(node: Any, subqueries: list[Any]) -> None:
    """The subqueries of an expression, but not those inside of them."""
    if _kind(node) == "SubLink":
        subqueries.append(node.subselect)
        _find_subqueries(node.testexpr, subqueries)
    elif isinstance(node, (list, tuple)):
        for each in node:
            _find_subqueries(each, subqueries)
    elif isinstance(node, ast.Node):
        for name in node:
            _find_subqueries(getattr(node, name), subqueries)


TEXTS = {
    name: sql_loader.with_values(text, 2) if sql_loader.inserts_given(text) else text
    for name, text in sql_loader.statements("citus").items()
}


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - REACHABLE.keys() - BEFORE_ENTRIES.keys() - WHOLE.keys()))
def test_a_statement_names_the_account(name: str) -> None:
    assert unrouted(TEXTS[name]) == [], TEXTS[name]
    assert "%(reachable)" not in TEXTS[name]


@pytest.mark.parametrize("name", REACHABLE)
def test_a_statement_about_all_accounts_can_leave_out_those_that_are_not_reachable(name: str) -> None:
    assert unrouted(TEXTS[name]), "the statement is about one account: remove it from the list"
    tables = re.findall(rf"\b(?:FROM|JOIN|UPDATE) (?:{'|'.join(BY_ACCOUNT)})\b", TEXTS[name])
    assert TEXTS[name].count("= ANY (%(reachable)s::bytea[])") == len(tables), TEXTS[name]


@pytest.mark.parametrize("name", BEFORE_ENTRIES)
def test_a_statement_before_entries_can_leave_out_accounts_that_are_not_reachable(name: str) -> None:
    assert unrouted(TEXTS[name]) == []
    assert TEXTS[name].count("= ANY (%(reachable)s::bytea[])") == 1


@pytest.mark.parametrize("name", WHOLE)
def test_a_statement_about_all_accounts_leaves_out_none(name: str) -> None:
    assert unrouted(TEXTS[name]), "the statement is about one account: remove it from the list"
    assert "%(reachable)" not in TEXTS[name]


FILTERS = [
    {}, {"endpoint": b"e"}, {"event": b"e"}, {"failure": "timeout"}, {"code": (500, 600)}, {"status": "failed"},
    {"status": "held"}, {"status": "pending"}, {"due_before": 1}, {"due_before": 1, "endpoint": b"e", "failure": "tls"},
    {"subscription": b"s", "event_type": "invoice.paid", "status": "in_flight"},
]  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_page_of_deliveries_names_the_account(filters: dict[str, Any]) -> None:
    request = PageRequest(b"a", DeliveryFilter(**filters), newest=True, limit=10)
    texts: list[str] = []

    class Recorder:
        def select(self, text: str, _parameters: dict[str, Any]) -> list[Any]:
            texts.append(text)
            return [(503,)] if "codes" in text else []

    listing_query.page(Recorder(), request)  # type: ignore[arg-type]
    assert texts
    for text in texts:
        assert unrouted(sql_loader.placed(text)) == [], text


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT 1 FROM entries WHERE id = %(id)s", ["entries"]),
        ("SELECT 1 FROM entries WHERE account = %(account)s OR id = %(id)s", ["entries"]),
        ("SELECT 1 FROM entries WHERE account = %(id)s", ["entries"]),
        ("SELECT 1 FROM entries e JOIN queue q ON q.account = e.account WHERE e.account = %(account)s", []),
        ("SELECT 1 FROM entries e JOIN queue q ON q.id = e.id WHERE e.account = %(account)s", ["queue"]),
        ("SELECT 1 FROM entries e JOIN accounts a ON a.id = e.account WHERE e.account = %(account)s", ["accounts"]),
        ("SELECT (SELECT 1 FROM queue q WHERE q.id = e.id) FROM entries e WHERE account = %(account)s", ["queue"]),
        ("DELETE FROM queue WHERE (account, id) IN (SELECT account, id FROM queue WHERE account = %(account)s)",
         ["queue"]),
        ("INSERT INTO unsealed (account, id) VALUES (%(account)s, %(id)s)", []),
        ("INSERT INTO unsealed (account, id) SELECT account, id FROM entries WHERE account = %(account)s",
         ["unsealed"]),
    ],
)  # fmt: skip
def test_the_check_finds_what_is_not_routed(text: str, tables: list[str]) -> None:
    assert unrouted(text) == tables
