"""Concurrent work with a fair share for each owner."""

import pytest

from gatepost.core.fair_queue import FairQueue, Work


class Started:
    """A queue, and the works that it started, in that order."""

    def __init__(self, in_all: int, for_one: int) -> None:
        self.queue = FairQueue(total=in_all, per_owner=for_one)
        self.names: list[str] = []

    def add(self, owner: str, *limits: tuple[str, int]) -> Work:
        work = Work(owner, lambda: self.names.append(owner), *limits)
        self.queue.add(work)
        return work


def test_what_has_a_place_starts_at_once() -> None:
    started = Started(100, 3)
    for _ in range(3):
        started.add("a")
    assert started.names == ["a", "a", "a"]


def test_an_owner_has_no_more_than_its_share() -> None:
    started = Started(100, 3)
    works = [started.add("a") for _ in range(5)]
    started.add("b")
    assert started.names == ["a", "a", "a", "b"]
    started.queue.done(works[0])
    assert started.names == ["a", "a", "a", "b", "a"]


def test_several_owners_leave_a_place_for_the_next() -> None:
    started = Started(100, 16)
    for number in range(12):
        for _ in range(50):
            started.add(f"greedy-{number}")
    assert len(started.names) < 100
    started.add("next")
    assert started.names[-1] == "next"


def test_owners_take_turns_when_places_are_few() -> None:
    started = Started(1, 1)
    works = [started.add(owner) for owner in ("a", "a", "a", "b", "c")]
    for _ in works:
        started.queue.done(next(work for work in works if work.running))
    assert started.names == ["a", "a", "b", "c", "a"]


def test_a_further_limit_holds_up_only_what_is_under_it() -> None:
    started = Started(100, 10)
    first = started.add("a", ("host", 1))
    second = started.add("a", ("host", 1))
    started.add("a", ("other host", 1))
    assert (first.running, second.running, len(started.names)) == (True, False, 2)
    started.queue.done(first)
    assert second.running


def test_what_is_not_needed_any_more_is_not_started() -> None:
    started = Started(4, 1)
    first, second = started.add("a"), started.add("a")
    started.queue.done(second)
    started.queue.done(first)
    assert started.names == ["a"]


@pytest.mark.parametrize("in_all", [1, 2, 3])
def test_few_places_are_used_all_the_same(in_all: int) -> None:
    started = Started(in_all, 5)
    for number in range(5):
        started.add(f"owner {number}")
    assert len(started.names) == in_all
