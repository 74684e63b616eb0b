"""A machine asks for itself. RFC 6749, section 4.4."""

from typing import Any

from gatepost.errors import Refusal
from gatepost.tokens.issue import SHARED, Definitions, Draft


def client_is_confidential(draft: Draft, _definitions: Definitions) -> Draft | Refusal:
    """The client authenticates itself; a public client cannot act on its own behalf."""
    if draft.client.public:
        return Refusal("unauthorized_client", "client_credentials needs a client that authenticates")
    return draft


RULES = (client_is_confidential, *SHARED)


def subject(draft: Draft) -> str:
    return draft.client.id


def extra_claims(draft: Draft) -> dict[str, Any]:
    """The fixed claims that the client's definition gives its machine tokens."""
    return draft.client.claims
