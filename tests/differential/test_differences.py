"""Bad requests get the same status and error code from Gatepost and from node oidc-provider, but where it is listed."""

import shutil
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.differential import sides
from tests.differential.differences import DIFFERENCES, PAGE, REASONS, page
from tests.differential.requests_to_send import REQUESTS, user_token
from tests.differential.shape import (
    CODE,
    MACHINE,
    REFRESH,
    Bad,
    about,
    answer,
    authorize,
    basic,
    bearer,
    key,
    named,
    par,
    post,
    token,
    userinfo,
)
from tests.differential.sides import CLIENTS, Side
from tests.login import LOGIN_URL
from tests.service import Service

pytestmark = pytest.mark.xdist_group("differential")


class Both(NamedTuple):
    ours: Side
    theirs: Side


@pytest.fixture(scope="module")
def both(sqlite_gatepost: Service) -> Iterator[Both]:
    if shutil.which("npm") is None:
        pytest.skip("Node is not on this machine; the service does not need it")
    ours = sides.ours(sqlite_gatepost)
    with sides.theirs(ours) as theirs:
        yield Both(ours, theirs)


# The valid requests that the invalid ones are derived from. They must be accepted.
RIGHT: dict[str, tuple[Bad, str]] = {
    "a machine by basic": (token(), "200"),
    "a machine by post": (token(MACHINE, post()), "200"),
    "a machine by its key": (token(MACHINE, key()), "200"),
    "a machine with a proof": (token(headers=(("DPoP", Side.proof),)), "200"),
    "a machine that must prove": (token(MACHINE, basic("bound"), headers=(("DPoP", Side.proof),)), "200"),
    "a code": (token(CODE), "200"),
    "a public client's code": (token(CODE, named("public"), code=lambda side: side.code("public")), "200"),
    "a code for one resource": (token(CODE, resource=lambda side: side.api), "200"),
    "a refresh token": (token(REFRESH), "200"),
    "a narrower scope": (token(REFRESH, scope="openid"), "200"),
    "an authorization": (authorize(), "303 login"),
    "an authorization by POST": (authorize(method="POST", in_query=False), "303 login"),
    "an authorization of a public client": (authorize("public"), "303 login"),
    "an authorization on another port": (
        authorize("native", redirect_uri="http://127.0.0.1:4000/back?from=login"), "303 login",
    ),
    "an authorization that was pushed": (authorize(request_uri=Side.pushed), "303 login"),
    "a push": (par(), "201"),
    "a push by a key": (par("key", key()), "201"),
    "a push with a proof": (par(headers=(("DPoP", lambda side: side.proof("par")),)), "201"),
    "introspection": (about("introspect", Side.machine_token), "200 active"),
    "introspection of a refresh token": (about("introspect", REFRESH["refresh_token"]), "200 active"),
    "revocation": (about("revoke", Side.machine_token), "200"),
    "userinfo": (userinfo(bearer(user_token)), "200"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_request_is_right_for_both(both: Both, name: str) -> None:
    right, result = RIGHT[name]
    assert (answer(both.ours, right).told, answer(both.theirs, right).told) == (result, result)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_bad_request(both: Both, name: str) -> None:
    ours, theirs = (answer(side, REQUESTS[name]) for side in both)
    assert not ours.told.startswith("5")
    assert leads_somewhere_known(REQUESTS[name], ours.to), ours.to
    if name in DIFFERENCES:
        assert (ours.told, theirs.told) == DIFFERENCES[name][:2]
    else:
        assert ours.told == theirs.told


def leads_somewhere_known(bad: Bad, to: str) -> bool:
    """To the login application, or to a redirect URI of the client's, as it is or with parameters added."""
    uris = CLIENTS[bad.role]["redirect_uris"]
    added = tuple(f"{uri}{'&' if '?' in uri else '?'}" for uri in uris)
    return to in ("", LOGIN_URL, *uris) or to.startswith(added)


def test_there_are_many() -> None:
    assert len(REQUESTS) >= 200


def test_only_what_is_sent_is_listed_and_only_once() -> None:
    listed = [
        name for reasons in REASONS.values() for each in reasons for names in each.pairs.values() for name in names
    ]
    assert len(listed) == len(set(listed)) == len(DIFFERENCES)
    assert set(listed) <= set(REQUESTS)


def test_what_is_listed_differs() -> None:
    assert not [name for name, each in DIFFERENCES.items() if each.ours == each.theirs]


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text("utf-8") == page(len(REQUESTS))
