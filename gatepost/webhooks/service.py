"""What the units of the webhook area know about the service that they run in."""

from typing import Protocol

from gatepost.core.secrets import ServerKeys
from gatepost.egress.address_guard import Policy


class Service(Protocol):
    @property
    def keys(self) -> ServerKeys: ...

    def policy_for(self, account: str) -> Policy:
        """Where requests for the account with this name may go."""
