"""The query string of GET /webhooks/deliveries: which deliveries the filters mean."""

import pytest

from gatepost.core import clock
from gatepost.web.deliveries import query
from gatepost.webhooks.listing import Query
from gatepost.webhooks.listing_query import DeliveryFilter

AT = 1_794_729_600_123


def filters(raw: str) -> DeliveryFilter:
    parsed = query(raw.encode())
    assert isinstance(parsed, Query), parsed
    return parsed.filters


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("503", (503, 504)), ("4xx", (400, 500)), ("600", (600, 601)), ("999", (999, 1000)), ("100", (100, 101)),
        ("5xx", (500, 1000)),  # as in a summary, where codes that are not valid count as 5xx
    ],
)  # fmt: skip
def test_response_codes(code: str, expected: tuple[int, int]) -> None:
    assert filters(f"response_code={code}").code == expected


@pytest.mark.parametrize("name", ["created_after", "created_before", "due_before"])
def test_a_time_between_two_milliseconds_is_that_of_the_later_one(name: str) -> None:
    """What was created in a millisecond was created at its beginning, as `created_at` says."""
    text = clock.rfc3339(clock.from_milliseconds(AT))
    assert getattr(filters(f"{name}={text}"), name) == AT
    assert getattr(filters(f"{name}={text[:-1]}001Z"), name) == AT + 1
