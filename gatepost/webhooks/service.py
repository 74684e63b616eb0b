"""The interface of the service that the units of the webhook area use."""

from typing import Protocol

from gatepost.core.secrets import ServerKeys
from gatepost.egress.address_guard import Policy


class Service(Protocol):
    """The service, as far as units of the webhook area need it."""

    @property
    def keys(self) -> ServerKeys: ...

    def policy_for(self, account: str) -> Policy:
        """Where requests for the account with this name may go."""
