"""The metrics of a service, parsed as Prometheus parses them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import LIMIT, wait_until

Labels = tuple[tuple[str, str], ...]


def read(text: str) -> dict[tuple[str, Labels], float]:
    """Return all samples by name and labels. No sample may be there twice."""
    found: dict[tuple[str, Labels], float] = {}
    families: set[str] = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} is there twice"
        families.add(family.name)
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


class Figures:
    """Reads the current metrics of a service."""

    def __init__(self, ops: str) -> None:
        self._url = f"{ops}/metrics"

    def text(self) -> str:
        answer = requests.get(self._url, timeout=LIMIT)
        assert answer.status_code == 200
        return answer.text

    def __call__(self, name: str, **labels: str) -> float:
        """Return the sum of all samples that have these labels; 0 if there are none."""
        wanted = set(labels.items())
        return sum(value for (each, has), value in read(self.text()).items() if each == name and wanted <= set(has))

    @contextmanager
    def growing(self, name: str, by: float, **labels: str) -> Iterator[dict[Labels, float]]:
        """Yield a dictionary that contains the growth of the samples of this name when the block has ended.

        A request is counted just after its response. So this waits until the samples with these labels have grown by
        `by` in total, and then until two readings are equal.
        """
        grown: dict[Labels, float] = {}
        before, wanted = self._all(name), set(labels.items())
        yield grown
        last: dict[Labels, float] = {}

        def at_rest() -> bool:
            last.clear()
            last.update(grown)
            grown.clear()
            after = self._all(name)
            grown.update({key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key)})
            return grown == last and sum(value for key, value in grown.items() if wanted <= set(key)) >= by

        wait_until(at_rest, f"{name} to grow by {by}")

    def _all(self, name: str) -> Mapping[Labels, float]:
        return {labels: value for (each, labels), value in read(self.text()).items() if each == name}


def labels(**named: str) -> Labels:
    return tuple(sorted(named.items()))
