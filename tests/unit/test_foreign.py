"""Foreign key sets: when they are fetched, which keys are used in the meantime, and the limit of fetches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gatepost.core.errors import GatepostError
from gatepost.egress import jwks_cache
from gatepost.egress.jwks_cache import FRESH, MAX_SETS, RETRY_AFTER, REVALIDATED, STALE, JwksCache, KeySetMissing
from tests.unit.foreign import EC, ED, OTHER_EC, encoded, public, token

NOW = datetime(2026, 11, 15, 8, tzinfo=UTC)
MOMENT = timedelta(milliseconds=1)
URL, OTHER_URL = "https://issuer.example/jwks", "https://other.example/jwks"
ONE, TWO = public(EC, kid="one"), public(OTHER_EC, kid="two")
SET = {"keys": [ONE]}
WITHOUT_KID = ".".join([encoded(b'{"alg":"ES256"}'), encoded(b"{}"), "AAAA"])


def signed(kid: Any = "one") -> str:
    return token({"alg": "ES256", "typ": "JWT"} | ({} if kid is None else {"kid": kid}))


@pytest.fixture
def known() -> JwksCache:
    """A set that was fetched now."""
    found = JwksCache()
    found.put(URL, SET, NOW)
    return found


def wanted(of: JwksCache, text: str, at: datetime, url: str = URL) -> bool:
    """Whether the set must be fetched first."""
    try:
        of.keys_for(text, url, at)
    except KeySetMissing as told:
        return told.request.url == url
    return False


def test_the_times() -> None:
    assert timedelta(0) < RETRY_AFTER < FRESH < REVALIDATED < STALE <= timedelta(days=1)


class TestAsking:
    def test_what_is_not_known_is_wanted(self) -> None:
        assert wanted(JwksCache(), signed(), NOW)
        assert issubclass(KeySetMissing, GatepostError)

    def test_what_was_fetched_is_used_while_it_is_fresh(self, known: JwksCache) -> None:
        for after in (timedelta(0), RETRY_AFTER, FRESH - MOMENT):
            assert known.keys_for(signed(), URL, NOW + after) == SET
        assert wanted(known, signed(), NOW + REVALIDATED)

    def test_each_url_has_its_own(self, known: JwksCache) -> None:
        assert wanted(known, signed(), NOW, OTHER_URL)
        known.put(OTHER_URL, {"keys": [TWO]}, NOW)
        assert known.keys_for(signed(), URL, NOW) == SET
        assert known.keys_for(signed("two"), OTHER_URL, NOW) == {"keys": [TWO]}

    @pytest.mark.parametrize("url", [URL + "/", URL + "?", URL.upper(), URL.replace("https", "http"), ""])
    def test_a_url_is_compared_as_it_is(self, known: JwksCache, url: str) -> None:
        assert wanted(known, signed(), NOW, url)

    def test_each_process_remembers_for_itself(self, known: JwksCache) -> None:
        assert not wanted(known, signed(), NOW)
        assert wanted(JwksCache(), signed(), NOW)


class TestUnknownKeys:
    """A key set may have a new key at any time; a token that names it asks for it, but only so often."""

    def test_an_unknown_kid_asks_again_after_a_while(self, known: JwksCache) -> None:
        for after in (timedelta(0), RETRY_AFTER - MOMENT):
            assert known.keys_for(signed("new"), URL, NOW + after) == SET
        assert wanted(known, signed("new"), NOW + RETRY_AFTER)
        assert not wanted(known, signed(), NOW + RETRY_AFTER), "who names a key that is known is not kept waiting"

    def test_a_key_that_came_is_found(self, known: JwksCache) -> None:
        known.put(URL, {"keys": [ONE, TWO]}, NOW + RETRY_AFTER)
        assert known.keys_for(signed("two"), URL, NOW + RETRY_AFTER) == {"keys": [ONE, TWO]}

    def test_a_key_that_went_is_gone(self, known: JwksCache) -> None:
        known.put(URL, {"keys": [TWO]}, NOW + FRESH)
        assert known.keys_for(signed("one"), URL, NOW + FRESH) == {"keys": [TWO]}

    def test_however_many_ids_are_made_up_it_is_asked_once_in_a_while(self, known: JwksCache) -> None:
        asked = 0
        for second in range(int(FRESH.total_seconds()) * 2):
            at = NOW + timedelta(seconds=second)
            for number in range(3):
                if wanted(known, signed(f"made-up-{second}-{number}"), at):
                    known.put(URL, SET, at)
                    asked += 1
        assert asked == FRESH * 2 // RETRY_AFTER - 1

    @pytest.mark.parametrize("text", ["", "a.b.c", "not a token", WITHOUT_KID, "é.é.é"])
    def test_a_token_that_names_no_key_asks_for_nothing(self, known: JwksCache, text: str) -> None:
        assert known.keys_for(text, URL, NOW + FRESH - MOMENT) == SET

    @pytest.mark.parametrize("kid", [5, [], ["one"], {}, {"kid": "one"}, True, "", "ONE", "one "])
    def test_a_kid_is_compared_as_it_is(self, known: JwksCache, kid: Any) -> None:
        assert wanted(known, signed(kid), NOW + RETRY_AFTER)
        assert known.keys_for(signed(kid), URL, NOW) == SET


class TestNotAnswering:
    """Its owner does not answer, or not with a key set."""

    NOTHING: tuple[Any, ...] = (None, [], {}, "x", 5, {"keys": None}, {"keys": {}}, {"key": [ONE]})

    @pytest.mark.parametrize("nothing", NOTHING)
    def test_what_was_never_there_is_no_key(self, nothing: Any) -> None:
        found = JwksCache()
        found.put(URL, nothing, NOW)
        for after in (timedelta(0), RETRY_AFTER - MOMENT):
            assert found.keys_for(signed(), URL, NOW + after) == {"keys": []}
        assert wanted(found, signed(), NOW + RETRY_AFTER)

    @pytest.mark.parametrize("nothing", NOTHING)
    def test_a_cached_set_is_used_for_a_day_and_fetched_again(self, known: JwksCache, nothing: Any) -> None:
        at = NOW + REVALIDATED
        while at < NOW + STALE:
            assert wanted(known, signed(), at)
            known.put(URL, nothing, at)
            assert known.keys_for(signed(), URL, at) == SET
            assert known.keys_for(signed(), URL, at + RETRY_AFTER - MOMENT) == SET
            at += timedelta(hours=2)
        known.put(URL, nothing, NOW + STALE - MOMENT)
        assert known.keys_for(signed(), URL, NOW + STALE - MOMENT) == SET
        assert known.keys_for(signed(), URL, NOW + STALE) == {"keys": []}

    def test_when_it_answers_again_it_is_fresh(self, known: JwksCache) -> None:
        later = NOW + STALE * 2
        known.put(URL, None, later)
        assert known.keys_for(signed(), URL, later) == {"keys": []}
        known.put(URL, {"keys": [ONE, TWO]}, later + RETRY_AFTER)
        assert known.keys_for(signed(), URL, later + RETRY_AFTER + FRESH - MOMENT) == {"keys": [ONE, TWO]}

    def test_an_empty_set_is_an_answer(self, known: JwksCache) -> None:
        """All keys were withdrawn, so the cached ones are no longer used."""
        known.put(URL, {"keys": []}, NOW + FRESH)
        assert known.keys_for(signed(None), URL, NOW + FRESH) == {"keys": []}


class TestContent:
    def test_keys_that_cannot_verify_are_left_out(self) -> None:
        found = JwksCache()
        odd: list[Any] = [
            ONE | {"d": "AA"}, {"kty": "oct", "k": "AA", "kid": "one"}, ONE | {"use": "enc"}, ONE | {"crv": "P-384"},
            ONE | {"alg": "none"}, {}, 5, None,
        ]  # fmt: skip
        right = public(ED, kid="three", use="sig")
        found.put(URL, {"keys": [*odd, ONE, right]}, NOW)
        assert found.keys_for(signed(), URL, NOW) == {"keys": [ONE, right]}

    def test_a_set_of_only_such_keys_is_empty(self) -> None:
        found = JwksCache()
        found.put(URL, {"keys": [{"kty": "oct", "k": "AA"}]}, NOW)
        assert found.keys_for(signed(), URL, NOW) == {"keys": []}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_SETS <= 10_000
    monkeypatch.setattr(jwks_cache, "MAX_SETS", 10)
    found, text = JwksCache(), signed()
    urls = [f"https://issuer.example/{number}" for number in range(95)]
    for url in urls:
        found.put(url, SET, NOW)
        assert found.keys_for(text, url, NOW) == SET
        assert sum(not wanted(found, text, NOW, each) for each in urls) <= 10


def test_one_that_does_not_answer_keeps_its_keys_when_memory_is_made_room_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks_cache, "MAX_SETS", 2)
    found = JwksCache()
    found.put(URL, SET, NOW)
    found.put(OTHER_URL, SET, NOW)
    found.put(URL, None, NOW + FRESH)
    assert found.keys_for(signed(), URL, NOW + FRESH) == SET
