"""What a token says that rests on something: a consent, another token, an assertion."""

from typing import Any

from gatepost.oauth.token_rules import Basis, Draft


def subject(draft: Draft) -> str:
    return _basis(draft).subject


def extra_claims(draft: Draft) -> dict[str, Any]:
    return _basis(draft).claims


def _basis(draft: Draft) -> Basis:
    if draft.basis is None:
        raise TypeError(f"{draft.request.grant_type} needs something to rest on")
    return draft.basis
