"""The senders of a delivery process: a shared one, and one for each set of networks that accounts may reach.

Idle connections and looked-up addresses belong to a sender. So a connection into an allowed network is never reused
for an account that may not reach that network.
"""

from collections.abc import Callable
from typing import Any

from gatepost.egress.address_guard import Network, Policy
from gatepost.egress.sender import Sender
from gatepost.egress.transfer import Outgoing, SendResult

_MAX_ACCOUNTS = 10_000  # whose sender is known


class Senders:
    """Has the interface of a `Sender`. Belongs to one event loop. The policy of an account must not change."""

    def __init__(
        self,
        policy_for: Callable[[str], Policy],
        finished: Callable[[list[SendResult]], None],
        *,
        make: type[Sender] = Sender,
        refused: Callable[[str, int, str], None] | None = None,
        **options: Any,
    ) -> None:
        self._policy_for = policy_for
        self._finished = finished
        self._make = make
        self._options = options
        self._refused = refused
        self._by_networks: dict[tuple[Network, ...], Sender] = {}
        self._by_account: dict[str, Sender] = {}
        self._sender_for("")

    @property
    def in_flight(self) -> int:
        return sum(sender.in_flight for sender in self._by_networks.values())

    def start(self, outgoing: Outgoing) -> None:
        sender = self._by_account.get(outgoing.account) or self._sender_for(outgoing.account)
        sender.start(outgoing)

    def abandon(self) -> list[Any]:
        return [key for sender in self._by_networks.values() for key in sender.abandon()]

    def close(self) -> None:
        for sender in self._by_networks.values():
            sender.close()

    def _sender_for(self, account: str) -> Sender:
        policy = self._policy_for(account)
        sender = self._by_networks.get(policy.allow_networks)
        if sender is None:
            sender = self._by_networks[policy.allow_networks] = self._make(policy, self._finished, **self._options)
            sender.refused = self._refused
        if len(self._by_account) >= _MAX_ACCOUNTS:
            self._by_account.clear()
        self._by_account[account] = sender
        return sender
