"""The table of errors: every code has a status and a meaning, and the standards' codes have the standards' status."""

import pytest

from gatepost.core.errors import ERRORS, BadSetting, GatepostError, Refusal, Unavailable
from gatepost.core.secrets import WrongKey


@pytest.mark.parametrize("code", ERRORS)
def test_every_code(code: str) -> None:
    assert code.isascii()
    assert code.replace("_", "").islower()
    assert 400 <= ERRORS[code].status <= 599
    assert ERRORS[code].meaning.endswith(".")
    assert Refusal(code, "x").status == ERRORS[code].status


@pytest.mark.parametrize(
    ("code", "status"),
    [
        # RFC 6749, section 5.2; RFC 8707, section 2
        ("invalid_request", 400), ("invalid_client", 401), ("invalid_grant", 400), ("unauthorized_client", 400),
        ("unsupported_grant_type", 400), ("invalid_scope", 400), ("invalid_target", 400),
        # RFC 6750, section 3.1
        ("invalid_token", 401), ("insufficient_scope", 403),
        # RFC 7591, section 3.2.2
        ("invalid_redirect_uri", 400), ("invalid_client_metadata", 400),
        # the contract, sections 1, 2 and 9
        ("not_found", 404), ("method_not_allowed", 405), ("conflict", 409), ("limit_reached", 409),
        ("request_too_large", 413), ("unsupported_media_type", 415),
        ("idempotency_key_reused", 422), ("too_many_failures", 429), ("quota_exceeded", 429),
        ("unsupported_version", 400),
    ],
)  # fmt: skip
def test_statuses(code: str, status: int) -> None:
    assert ERRORS[code].status == status


def test_a_code_that_is_not_in_the_table_has_no_status() -> None:
    with pytest.raises(KeyError):
        _ = Refusal("unheard_of", "x").status


def test_the_tree() -> None:
    assert issubclass(BadSetting, GatepostError)
    assert issubclass(Unavailable, GatepostError)
    assert issubclass(WrongKey, BadSetting)
    assert not issubclass(Refusal, Exception), "a refusal is returned, never raised"
