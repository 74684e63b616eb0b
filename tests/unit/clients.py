"""Bodies of POST /oauth/clients in their smallest form, and what defining them gives."""

from datetime import UTC, datetime
from typing import Any

from joserfc.jwk import ECKey

from gatepost.core.errors import Refusal
from gatepost.oauth import client_rules
from gatepost.oauth.client_rules import ClientDefinition
from gatepost.oauth.clients import MEMBERS, Client

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
BASE_URL = "https://gatepost.example"
ACCOUNT = "acc_06d8un0u5du3r3ifb9lnp3culs"

MACHINE: dict[str, Any] = {"grant_types": ["client_credentials"]}
WEB: dict[str, Any] = {"redirect_uris": ["https://app.example.com/callback"]}
NATIVE: dict[str, Any] = {"redirect_uris": ["com.example.app:/callback"], "application_type": "native"}
PUBLIC: dict[str, Any] = WEB | {"token_endpoint_auth_method": "none"}
KEY: dict[str, Any] = dict(ECKey.generate_key("P-256").as_dict(private=False))
KEYED: dict[str, Any] = MACHINE | {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY]}}

PLAIN_MEMBERS = set(MEMBERS.request) - {"client_id", "grants", "rotate_secret"}


def define(
    sent: dict[str, Any], known: Client | None = None, at: datetime = NOW, *, strict: bool = False
) -> ClientDefinition | Refusal:
    return client_rules.define(sent, known, account=ACCOUNT, base_url=BASE_URL, at=at, strict=strict)


def definition(
    sent: dict[str, Any], known: Client | None = None, at: datetime = NOW, *, strict: bool = False
) -> ClientDefinition:
    found = define(sent, known, at, strict=strict)
    assert isinstance(found, ClientDefinition), found
    return found


def defined(sent: dict[str, Any], known: Client | None = None, at: datetime = NOW, *, strict: bool = False) -> Client:
    return definition(sent, known, at, strict=strict).client


def refused(sent: dict[str, Any], known: Client | None = None, *, strict: bool = False) -> Refusal:
    found = define(sent, known, strict=strict)
    assert isinstance(found, Refusal), found
    return found
