"""A machine asks for itself. RFC 6749, section 4.4."""

from typing import Any

from gatepost.tokens.issue import SHARED, Draft, client_is_confidential

RULES = (client_is_confidential, *SHARED)


def subject(draft: Draft) -> str:
    return draft.client.id


def extra_claims(draft: Draft) -> dict[str, Any]:
    """The fixed claims that the client's definition gives its machine tokens."""
    return draft.client.claims
