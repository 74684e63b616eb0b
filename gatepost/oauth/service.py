"""The configuration that units of work of the authorization server need: base URL, keys, policies, shared resources."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from gatepost.core.secrets import ServerKeys
from gatepost.egress.address_guard import Policy
from gatepost.egress.jwks_cache import JwksCache
from gatepost.ledger.checkpoint import Signer
from gatepost.oauth import key_rows, scope_rows
from gatepost.oauth.scopes import Scope
from gatepost.oauth.shared_resources import SharedResources
from gatepost.oauth.signing_keys import KeyRing, SigningKey
from gatepost.store.transaction import Tx


class Service(NamedTuple):
    """The configuration of the authorization server. It does not change while a process runs."""

    base_url: str
    keys: ServerKeys
    ring: KeyRing
    shared_resources: SharedResources = SharedResources()
    dev: bool = False
    policy: Policy = Policy()  # of accounts without one of their own
    foreign: JwksCache = JwksCache()
    account_policies: Mapping[str, Policy] = {}
    protocol: Literal["full", "six"] = "full"

    def policy_for(self, account: str) -> Policy:
        """The networks that requests for the account with this name may be sent to."""
        return self.account_policies.get(account, self.policy)

    def scope(self, tx: Tx, account: str, name: str) -> Scope | None:
        """The account's own scope, or one of a shared resource. Only the operator defines those."""
        shared = self.shared_resources
        if not shared.by_name:
            return scope_rows.load(tx, account, name)
        if name not in shared.by_scope:
            own = scope_rows.load(tx, account, name)
        else:  # a missing scope is cached, too
            (own,) = tx.derived(("own scope", account, name), lambda: (scope_rows.load(tx, account, name),))
        return own if own is not None and not shared.includes(own.resource) else shared.scope(account, name)

    def definitions(self, tx: Tx) -> "Definitions":
        return Definitions(self, tx)

    def active_key(self, tx: Tx, alg: str) -> SigningKey:
        """The key that signs with this algorithm, loaded into the ring."""
        for stored in key_rows.load(tx):
            if stored.key.alg == alg and stored.key.status == "active":
                self.ring.load(stored)
                return stored.key
        raise LookupError(f"no active {alg} key")

    @property
    def signer(self) -> Signer:
        """Signs the checkpoints of the ledgers."""
        return Signer(self.keys.checkpoint)


class Definitions(NamedTuple):
    """What rules may look up, in one transaction."""

    service: Service
    tx: Tx

    def scope(self, account: str, name: str) -> Scope | None:
        return self.service.scope(self.tx, account, name)

    def fixed_claims(self, resource: str) -> dict[str, Any] | None:
        return self.service.shared_resources.claims(resource)
