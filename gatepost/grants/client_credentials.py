"""A machine asks for itself. RFC 6749, section 4.4."""

from typing import Any

from gatepost.tokens.issue import SHARED, Draft, client_is_confidential

RULES = (client_is_confidential, *SHARED)


def subject(draft: Draft) -> str:
    return draft.client.id


def extra_claims(draft: Draft) -> dict[str, Any]:
    """The fixed claims of the client; of a shared resource only those that the operator lists."""
    allowed = draft.fixed_claims
    if allowed is None:
        return draft.client.claims
    return {name: value for name, value in draft.client.claims.items() if name in allowed}
