"""Resources in normal form: every look-alike is refused, and the error names the form that is accepted."""

import pytest

from gatepost.oauth import resources

BASE_URL = "https://gatepost.example"
RIGHT = "https://api.a.example"
LOOK_ALIKES = {
    "an empty query": "https://api.a.example?",
    "an empty fragment": "https://api.a.example#",
    "a fragment": "https://api.a.example#part",
    "an empty query and fragment": "https://api.a.example?#",
    "a dot segment": "https://api.a.example/.",
    "an escaped dot segment": "https://api.a.example/%2e",
    "an escaped dot segment, upper case": "https://api.a.example/%2E",
    "two dots": "https://api.a.example/..",
    "two dots, one escaped": "https://api.a.example/.%2e",
    "up and down": "https://api.a.example/x/..",
    "a user": "https://user@api.a.example",
    "a user and a password": "https://user:secret@api.a.example",
    "an empty user": "https://@api.a.example",
    "a host as the user": "https://api.b.example@api.a.example",
    "a trailing dot": "https://api.a.example.",
    "scheme in upper case": "HTTPS://api.a.example",
    "host in upper case": "https://API.a.example",
    "the default port": "https://api.a.example:443",
    "the default port with a zero": "https://api.a.example:0443",
    "an empty port": "https://api.a.example:",
}
OTHERS = {
    "https://api.a.example/%7Ev1": "https://api.a.example/~v1",
    "https://api.a.example/%c3%a4": "https://api.a.example/%C3%A4",
    "https://api.a.example/v1/../v2": "https://api.a.example/v2",
    "https://api.a.example/v1/./v2?a=%62": "https://api.a.example/v1/v2?a=b",
    "https://b\u00fccher.example": "https://xn--bcher-kva.example",
    "https://\u2170.example": None,
    "https://[2001:DB8:0:0::1]": "https://[2001:db8::1]",
    "https://[::ffff:192.0.2.1]": "https://[::ffff:c000:201]",
    "urn:Example:Api": "urn:example:Api",
}
AMBIGUOUS = [
    "https://api.a.example\\x", "https:\\\\api.a.example", "https:/api.a.example", "https:api.a.example",
    "https://api%2ea.example", "https://%61pi.a.example", "https://api..a.example", "https://.a.example",
    "https://127.1", "https://0177.0.0.1", "https://0x7f.0.0.1", "https://2130706433", "https://[::1%25eth0]",
    "https://api.a.example/v1%2Fv2", "https://api.a.example/v1%5Cv2", "https://api.a.example/..;/x",
    "https://api.a.example//v1", "https://api.a.example/%", "https://api.a.example/%zz", "https://api.a.example?%",
    "https://api.a.example/<x>", "https://api.a.example/%00", "https://xn--api-.example", "https://xn--.example",
]  # fmt: skip


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_is_refused_with_the_normal_form(name: str) -> None:
    found = resources.problem(LOOK_ALIKES[name], BASE_URL)
    assert found in (f"must be in normal form: {RIGHT}", f"must be in normal form: {RIGHT}/")


@pytest.mark.parametrize("value", OTHERS)
def test_the_normal_form(value: str) -> None:
    normal = OTHERS[value]
    assert resources.problem(value, BASE_URL)
    if normal is not None:
        assert resources.problem(value, BASE_URL) == f"must be in normal form: {normal}"
        assert resources.problem(normal, BASE_URL) == ""


@pytest.mark.parametrize("value", AMBIGUOUS)
def test_what_verifiers_read_differently_is_refused(value: str) -> None:
    assert resources.normal_form(value) is None
    assert resources.problem(value, BASE_URL).startswith("must be an absolute URI")


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("base_url", ["https://api.a.example", "https://api.a.example:443"])
def test_no_look_alike_of_the_base_url_is_a_resource(name: str, base_url: str) -> None:
    for value in (LOOK_ALIKES[name], RIGHT, f"{RIGHT}/", f"{RIGHT}//"):
        assert "base URL" in resources.problem(value, base_url)


@pytest.mark.parametrize(("one", "other"), [
    (RIGHT, f"{RIGHT}/"), (f"{RIGHT}/v1", f"{RIGHT}/v1/"), (f"{RIGHT}?v=1", f"{RIGHT}/?v=1"),
    (f"{RIGHT}/v1?v=1", f"{RIGHT}/v1/?v=1"), (f"{RIGHT}?v=1", f"{RIGHT}?v=1/"), (RIGHT, f"{RIGHT}?/"),
])  # fmt: skip
def test_a_slash_makes_no_other_owner(one: str, other: str) -> None:
    assert resources.problem(one, BASE_URL) == resources.problem(other, BASE_URL) == ""
    assert resources.owned_as(one) == resources.owned_as(other)


def test_another_query_is_another_resource() -> None:
    assert len({resources.owned_as(f"{RIGHT}{each}") for each in ("", "?v=1", "?v=2", "/v1?v=1", "/v1")}) == 5
