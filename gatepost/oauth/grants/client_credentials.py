"""A machine asks for itself. RFC 6749, section 4.4."""

from typing import Any

from gatepost.oauth.token_rules import SHARED, Draft, client_is_confidential

RULES = (client_is_confidential, *SHARED)


def subject(draft: Draft) -> str:
    return draft.client.id


def extra_claims(draft: Draft) -> dict[str, Any]:
    """The fixed claims of the client; for a shared resource those of the operator, and none of the client's."""
    return draft.client.claims if draft.fixed_claims is None else draft.fixed_claims
