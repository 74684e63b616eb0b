"""What /metrics says, read as Prometheus reads it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import requests
from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]


def read(text: str) -> dict[tuple[str, Labels], float]:
    """Every figure by its name and labels, each of which must be there once."""
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
    """The metrics of a service, as they are at this moment."""

    def __init__(self, ops: str) -> None:
        self._url = f"{ops}/metrics"

    def text(self) -> str:
        answer = requests.get(self._url, timeout=20)
        assert answer.status_code == 200
        return answer.text

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all that have these labels; 0 where there are none."""
        wanted = set(labels.items())
        return sum(value for (each, has), value in read(self.text()).items() if each == name and wanted <= set(has))

    @contextmanager
    def growing(self, name: str) -> Iterator[dict[Labels, float]]:
        """By how much the figures of this name grow: in the dictionary when the block is over."""
        grown: dict[Labels, float] = {}
        before = self._all(name)
        yield grown
        after = self._at_rest(name)
        grown |= {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key)}

    def _at_rest(self, name: str) -> Mapping[Labels, float]:
        """Once they are the same twice: a request is counted just after its answer."""
        found = self._all(name)
        for _ in range(100):
            time.sleep(0.05)
            last, found = found, self._all(name)
            if last == found:
                break
        return found

    def _all(self, name: str) -> Mapping[Labels, float]:
        return {labels: value for (each, labels), value in read(self.text()).items() if each == name}


def labels(**named: str) -> Labels:
    return tuple(sorted(named.items()))
