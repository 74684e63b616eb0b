"""What the operator's view reads: accounts, clients, scopes, tokens, entries, keys and nodes. It writes nothing.

Each function reads one page in one transaction, and its cost is bounded. None of them returns a secret, the hash of a
secret or a private key.
"""

from datetime import timedelta
from typing import Any, NamedTuple

from gatepost import __version__
from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.core.errors import Refusal
from gatepost.ledger import chain_rows, chain_status, entries, entry_rows, seal_rows, search
from gatepost.ledger.chain import BrokenChain, Chain
from gatepost.ledger.search import EntryFilter, EntryPage
from gatepost.oauth import client_rows, define_client, key_rotation, key_rows, scope_rows, scopes, token_admin
from gatepost.oauth.consents import LONGEST_ACCESS
from gatepost.oauth.service import Service
from gatepost.oauth.signing_keys import ROTATE, SigningKey
from gatepost.store import nodes
from gatepost.store.transaction import HIGHEST, LOWEST, Tx
from gatepost.webhooks import last_hour, listing, peers, worker_rows

Json = dict[str, Any]

DEFAULT_LIMIT = 25
MAX_LIMIT = 100
ACCOUNTS_SEARCHED = 200  # for an entry, in one request


class Question(NamedTuple):
    """A request for a view: the service, the account that it names, and its other parameters."""

    service: Service
    account: Account | None
    values: dict[str, Any]

    @property
    def limit(self) -> int:
        return int(self.values.get("limit", DEFAULT_LIMIT))

    @property
    def cursor(self) -> str:
        return str(self.values.get("cursor", ""))

    @property
    def owner(self) -> Account:
        if self.account is None:
            raise LookupError("the view requires an account")
        return self.account


def _page(data: list[Json], cursor: str | None) -> Json:
    return {"data": data, "next_cursor": cursor}


def _id_in_cursor(question: Question, prefix: str, start: bytes) -> bytes | Refusal:
    found = ids.parse(prefix, question.cursor) if question.cursor else start
    return found or Refusal("invalid_request", "cursor: must be a next_cursor of the same view", "cursor")


# --- the service


def overview(tx: Tx, _question: Question) -> Json:
    """The release, the signing keys, the nodes and the workers."""
    return {
        "version": __version__,
        "now": clock.rfc3339(tx.at),
        "keys": [_render_key(stored.key) for stored in key_rows.load(tx)],
        "nodes": [
            {
                "host": node.host, "kind": node.kind, "version": node.version, "started_at": _time(node.started_at),
                "heartbeat_at": _time(node.beat_at), "running": not node.is_silent(tx.now),
            }
            for node in nodes.load(tx)
        ],
        "workers": [
            {
                "id": ids.text("wrk", worker.id), "heartbeat_at": _time(worker.beat_at),
                "running": peers.is_running(worker, tx.now),
            }
            for worker in worker_rows.load(tx)
        ],
        "database_nodes": [
            {"name": node.name, "reachable": node not in tx.shards.down} for node in tx.shards.nodes
        ] if tx.shards else [],
    }  # fmt: skip


def _render_key(key: SigningKey) -> Json:
    rotates_at = key.activated_at + ROTATE if key.status == "active" and key.activated_at else None
    return key_rotation.render(key) | {"rotates_at": clock.rfc3339(rotates_at) if rotates_at else None}


def _time(milliseconds: int) -> str:
    return clock.rfc3339(clock.from_milliseconds(milliseconds))


# --- accounts


def list_accounts(tx: Tx, question: Question) -> Json:
    """Accounts by name, each with its ledger, the deliveries of the last hour and the unfinished ones."""
    page = account_rows.page(tx, question.cursor, question.limit)
    chains = chain_rows.load_many(
        tx, question.service.keys.seal, [account.id for account in page if _reachable(tx, account)]
    )
    data = [_render_account(tx, account, chains.get(account.id)) for account in page]
    return _page(data, page[-1].name if len(page) == question.limit else None)


def _reachable(tx: Tx, account: Account) -> bool:
    """Whether the account's database node is up."""
    return tx.shards is None or tx.shards.is_reachable(ids.raw(account.id))


def _render_account(tx: Tx, account: Account, chain: Chain | BrokenChain | None) -> Json:
    rendered = {
        "id": account.id, "name": account.name, "status": account.status,
        "created_at": clock.rfc3339(account.created_at), "reachable": _reachable(tx, account),
        "sealed_entries": chain.tree.size if isinstance(chain, Chain) else None,
        "ledger_problem": None, "last_hour": None,
    }  # fmt: skip
    if rendered["reachable"]:
        rendered["ledger_problem"] = chain_status.record_problem(chain) or None
        rendered["last_hour"] = last_hour.render(tx, account)
    return rendered


def show_account(tx: Tx, question: Question) -> Json | Refusal:
    """One account: its settings, how many clients and scopes it has, its deliveries of the last day, and its ledger."""
    account = question.owner
    deliveries = listing.summarize(tx, account, listing.Query(view="summary"))
    if isinstance(deliveries, Refusal):
        return deliveries
    counts = {"clients": client_rows.count(tx, account.id), "scopes": scope_rows.count(tx, account.id)}
    ledger = chain_status.render(tx, question.service.keys.seal, account.id)
    return account.render() | {"counts": counts, "deliveries": deliveries.body, "ledger": ledger}


# --- what an account has


def list_clients(tx: Tx, question: Question) -> Json | Refusal:
    """Clients, the oldest first. Of their secrets, only the ids and times are returned."""
    after = _id_in_cursor(question, "cli", LOWEST)
    if isinstance(after, Refusal):
        return after
    page = client_rows.page(tx, question.owner.id, after, question.limit)
    data = [define_client.render(tx, client) for client in page]
    return _page(data, page[-1].id if len(page) == question.limit else None)


def list_scopes(tx: Tx, question: Question) -> Json:
    """The scopes that the account defined, by name."""
    page = scope_rows.page(tx, question.owner.id, question.cursor, question.limit)
    return _page([scopes.render(scope) for scope in page], page[-1].name if len(page) == question.limit else None)


def list_tokens(tx: Tx, question: Question) -> Json | Refusal:
    """The access tokens that were issued in the last day, newest first, with their states. Older ones have expired."""
    since = tx.at - LONGEST_ACCESS - timedelta(minutes=1)
    wanted = EntryFilter(("oauth.token.issued",), actor=question.values.get("client", ""), since=since)
    page = _entry_page(tx, question, wanted)
    if isinstance(page, Refusal):
        return page
    data = [token_admin.render(tx, question.service, entry) for entry in page.entries]
    return _page(data, ids.text("evt", page.next) if page.next else None)


# --- entries


def list_entries(tx: Tx, question: Question) -> Json | Refusal:
    """Ledger entries that meet all conditions, newest first."""
    values = question.values
    mentions = frozenset({values["mentions"]} if "mentions" in values else ())
    wanted = EntryFilter(
        (values["type"],) if "type" in values else (), values.get("actor", ""), values.get("subject", ""),
        values.get("since"), values.get("until"), mentions,
    )  # fmt: skip
    page = _entry_page(tx, question, wanted)
    if isinstance(page, Refusal):
        return page
    return _page([entries.render(entry) for entry in page.entries], ids.text("evt", page.next) if page.next else None)


def _entry_page(tx: Tx, question: Question, wanted: EntryFilter) -> EntryPage | Refusal:
    before = _id_in_cursor(question, "evt", HIGHEST)
    if isinstance(before, Refusal):
        return before
    return search.page(tx, question.owner.id, wanted, before, question.limit)


def find_entry(tx: Tx, question: Question) -> Json:
    """Search for an entry by its id: in one account, or in the next accounts by name."""
    raw_id = ids.raw(question.values["id"])
    page = [question.account] if question.account else account_rows.page(tx, question.cursor, ACCOUNTS_SEARCHED)
    accounts = {ids.raw(account.id): account for account in page if _reachable(tx, account)}
    found = entry_rows.load_many(tx, [(raw_account, raw_id) for raw_account in accounts])
    tx.check_snapshot()
    more = page[-1].name if len(page) == ACCOUNTS_SEARCHED and not found else None
    for (raw_account, _), entry in found.items():
        sealed = not seal_rows.is_unsealed(tx, entry.account, raw_id)
        rendered = entries.render(entry) | {"account_name": accounts[raw_account].name, "sealed": sealed}
        return {"entry": rendered, "next_cursor": None, "not_searched": 0}
    return {"entry": None, "next_cursor": more, "not_searched": len(page) - len(accounts)}
