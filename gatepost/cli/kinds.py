"""The kinds of resources that commands define: clients, scopes, endpoints and subscriptions."""

from datetime import timedelta
from typing import NamedTuple

from gatepost.core.members import MemberTable
from gatepost.oauth import clients, scopes
from gatepost.web import definitions
from gatepost.web.definitions import Operation
from gatepost.webhooks import endpoints, subscriptions


class Kind(NamedTuple):
    """A kind of resource: its operation, its members, and the members that identify it, hold its secret and name it."""

    noun: str
    path: str
    operation: Operation
    table: MemberTable
    id: str = "id"
    secret: str = ""
    names: tuple[str, ...] = ()  # with --if-missing, a resource with these values is not created again
    max_overlap: timedelta = timedelta()  # of its previous secret


CLIENT = Kind(
    "client", "/oauth/clients", definitions.CLIENTS, clients.MEMBERS, "client_id", "client_secret", ("client_name",),
    clients.MAX_OVERLAP,
)  # fmt: skip
SCOPE = Kind("scope", "/oauth/scopes", definitions.SCOPES, scopes.MEMBERS, "name")
ENDPOINT = Kind(
    "endpoint", "/webhooks/endpoints", definitions.ENDPOINTS, endpoints.MEMBERS, "id", "secret", ("url",),
    endpoints.MAX_OVERLAP,
)  # fmt: skip
SUBSCRIPTION = Kind(
    "subscription", "/webhooks/subscriptions", definitions.SUBSCRIPTIONS, subscriptions.MEMBERS,
    names=("endpoint_id", "events"),
)  # fmt: skip
