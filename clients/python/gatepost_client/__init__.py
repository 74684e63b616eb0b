"""The Python client of Gatepost: verify webhooks and access tokens, obtain tokens, define resources, publish events.

Names are imported when they are first used: a receiver that only verifies webhooks does not load the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

if TYPE_CHECKING:
    from gatepost_client.access_tokens import AccessToken, RequestCredentials, TokenVerifier
    from gatepost_client.async_client import AsyncClient
    from gatepost_client.client import Client
    from gatepost_client.credentials import ClientKey, ClientSecret
    from gatepost_client.dpop import ProofKey
    from gatepost_client.errors import ApiError, GatepostError, TokenError, VerificationError
    from gatepost_client.events import Event, PublishedEvent
    from gatepost_client.outbox import publish, publish_async
    from gatepost_client.webhooks import verify as verify_webhook

_MODULES = {
    "access_tokens": ("AccessToken", "RequestCredentials", "TokenVerifier"),
    "async_client": ("AsyncClient",),
    "client": ("Client",),
    "credentials": ("ClientKey", "ClientSecret"),
    "dpop": ("ProofKey",),
    "errors": ("ApiError", "GatepostError", "TokenError", "VerificationError"),
    "events": ("Event", "PublishedEvent"),
    "outbox": ("publish", "publish_async"),
    "webhooks": ("verify_webhook",),
}
__all__ = [
    "AccessToken",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientKey",
    "ClientSecret",
    "Event",
    "GatepostError",
    "ProofKey",
    "PublishedEvent",
    "RequestCredentials",
    "TokenError",
    "TokenVerifier",
    "VerificationError",
    "publish",
    "publish_async",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    """Import a name from its module when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            found = importlib.import_module(f"gatepost_client.{module}")
            return getattr(found, "verify" if name == "verify_webhook" else name)
    raise AttributeError(f"module 'gatepost_client' has no attribute {name!r}")
