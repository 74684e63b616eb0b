"""What every unit may know about the service it runs in, and the answers that units give."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.core.secrets import ServerKeys
from gatepost.egress.address_guard import Policy
from gatepost.egress.jwks_cache import Foreign
from gatepost.ledger.checkpoint import Signer
from gatepost.ledger.entries import TYPES, Entry, Origin, new
from gatepost.oauth import scopes
from gatepost.oauth.scopes import Scope
from gatepost.oauth.shared_resources import SharedResources
from gatepost.oauth.signing_keys import Ring
from gatepost.store.tx import Tx


class Service(NamedTuple):
    base_url: str
    keys: ServerKeys
    ring: Ring
    shared_resources: SharedResources = SharedResources()
    dev: bool = False
    policy: Policy = Policy()  # of accounts that the operator allowed no networks to
    foreign: Foreign = Foreign()
    account_policies: Mapping[str, Policy] = {}

    def policy_for(self, account: str) -> Policy:
        """Where requests for this account, by its name, may go."""
        return self.account_policies.get(account, self.policy)

    def scope(self, tx: Tx, account: str, name: str) -> Scope | None:
        """The account's own scope, else one of a shared resource. For such a resource only the operator's count."""
        shared = self.shared_resources
        if not shared.by_name:
            return tx.scope(account, name)
        if name not in shared.by_scope:
            own = tx.scope(account, name)
        else:  # that there is no scope of its own is remembered too
            (own,) = tx.derived(("own scope", account, name), lambda: (tx.scope(account, name),))
        return own if own is not None and not shared.includes(own.resource) else shared.scope(account, name)

    def definitions(self, tx: Tx) -> "Definitions":
        return Definitions(self, tx)

    @property
    def signer(self) -> Signer:
        """Signs the checkpoints of the ledgers."""
        return Signer(self.keys.checkpoint)

    @property
    def token_endpoint(self) -> str:
        return f"{self.base_url}/oauth/tokens"


class Definitions(NamedTuple):
    """What the rules of a decision may look up, in one transaction."""

    service: Service
    tx: Tx

    def scope(self, account: str, name: str) -> Scope | None:
        return self.service.scope(self.tx, account, name)

    def fixed_claims(self, resource: str) -> dict[str, Any] | None:
        return self.service.shared_resources.claims(resource)


class Caller(NamedTuple):
    """Who calls an operation: the client, its account, and the scopes of the token it showed."""

    account: str
    client: str
    scopes: frozenset[str]
    token: str = ""

    def origin(self, request: str, source: str) -> Origin:
        return Origin(self.client, request, source)


def operator(account: str) -> Caller:
    """A person with the command line: may do anything in the account."""
    return Caller(account, "operator", frozenset(scopes.OPERATIONS))


class Answer(NamedTuple):
    """A resource as it now is, or why not; and the entry that records it."""

    status: int
    body: dict[str, Any]
    event: str | None
    refusal: Refusal | None = None
    secret: bool = False


def record(tx: Tx, account: Account, type_: str, origin: Origin, subject: str, data: dict[str, Any]) -> Entry:
    """Write one fact about the account into its ledger, in this commit."""
    if type_ not in TYPES:
        raise ValueError(f"{type_} is not among the ledger's types")
    keep_days = account.seconds("audit_retention") // 86400
    return tx.record(
        new(type_, account=account.id, origin=origin, subject=subject, data=data, at=tx.at, keep_days=keep_days)
    )


def refused(tx: Tx, account: Account, type_: str, origin: Origin, refusal: Refusal, **data: Any) -> Answer:
    """A refusal of an authenticated caller: ledgered, and answered with the entry's id."""
    told = {"error": refusal.code, "error_description": refusal.detail} | data
    if refusal.pointer:
        told["member"] = refusal.pointer.lstrip("/")
    entry = record(tx, account, type_, origin, origin.actor, told)
    return Answer(refusal.status, {}, entry.name, refusal)
