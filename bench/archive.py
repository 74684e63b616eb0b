"""Measures the size of an archive: `python -m bench.archive`.

It fills a new SQLite store with a day of deliveries at 100 a second with random ids, Pareto-distributed endpoints,
log-normal durations, several workers, and failed attempts that are retried. Then it seals and archives the day with the
service's own code, and prints the bytes of each column. Response bodies are counted separately.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bench import rows as loading
from gatepost.accounts import lookup
from gatepost.archive import export, manifest
from gatepost.archive.export import Source
from gatepost.core import clock, ids
from gatepost.ledger import sealing
from gatepost.run import app
from gatepost.settings import Settings
from gatepost.webhooks.deliveries import AttemptDocument

_PER_SECOND = 100
_WORKERS = [ids.new("wrk") for _ in range(8)]
_TYPES = ("invoice.created", "invoice.paid", "customer.updated", "order.shipped", "payment.failed")
_SCHEDULE = (5, 300, 1800)


class _Endpoint:
    def __init__(self, dice: random.Random, number: int) -> None:
        self.id, self.subscription, self.key = ids.new_raw(), ids.new_raw(), ids.new("sk")
        self.url = f"https://hooks{number}.customer.example/webhooks/gatepost"
        self.address = f"203.0.113.{number % 250}"
        self.latency = dice.lognormvariate(4, 0.6)  # milliseconds


def day(account: bytes, first: int, count: int, dice: random.Random) -> Iterator[loading.Rows]:
    """Generate the deliveries of a day from `first` on, with their events and attempts."""
    endpoints = [_Endpoint(dice, number) for number in range(200)]
    at = float(first)
    for start in range(0, count, 20_000):
        rows: loading.Rows = {name: [] for name in (*loading.COLUMNS, "unsealed")}
        for _ in range(start, min(count, start + 20_000)):
            at += dice.expovariate(_PER_SECOND / 1000)
            endpoint = endpoints[min(len(endpoints), int(dice.paretovariate(0.8))) - 1]
            _deliver(rows, account, int(at), endpoint, dice)
        yield rows


def _deliver(rows: loading.Rows, account: bytes, at: int, endpoint: _Endpoint, dice: random.Random) -> None:
    event, delivery, kind = _raw_id(at, dice), _raw_id(at, dice), dice.choice(_TYPES)
    data = f'{{"id":"{dice.getrandbits(64):016x}","amount":{dice.randrange(100_000)},"currency":"EUR"}}'
    rows["entries"].append((account, event, kind, at, "bench", "", data, None, 1, 30, "", ""))
    rows["unsealed"].append((account, event))
    number, planned, ended, code = 0, at, at, 0
    while code != 200 and number <= len(_SCHEDULE):
        number += 1
        code = 200 if dice.random() < 0.97 else 503
        document = _attempt(planned, endpoint, code, number, dice)
        ended = document.ended_at
        outcome = "succeeded" if code == 200 else "failed"
        rows["attempts"].append((account, delivery, number, outcome, msgspec.json.encode(document).decode()))
        planned = ended + int(_SCHEDULE[min(number, 3) - 1] * 1000 * dice.uniform(0.9, 1.1))
    end = ("succeeded", ended, "delivered") if code == 200 else ("failed", ended, "attempts_exhausted")
    bad = (None, None) if code == 200 else ("failed", code)
    rows["deliveries"].append(
        (account, delivery, endpoint.id, endpoint.subscription, event, kind, "event", *end, code, None, 30, *bad)
    )


def _attempt(planned: int, endpoint: _Endpoint, code: int, number: int, dice: random.Random) -> AttemptDocument:
    first_byte = endpoint.latency * dice.lognormvariate(0, 0.3)
    timings = {}
    if dice.random() < 0.1:  # a new connection
        dns = dice.lognormvariate(1, 0.5)
        timings = {"dns_ms": _tenth(dns), "connect_ms": _tenth(dns + first_byte * 0.2)}
        timings |= {"tls_ms": _tenth(dns + first_byte * 0.5)}
    duration = first_byte + dice.random()
    started = planned + int(dice.expovariate(0.3))
    body = '{"received":true}' if dice.random() < 0.7 else f'{{"id":"{dice.getrandbits(128):032x}","status":"queued"}}'
    return AttemptDocument(
        planned, started, started + int(duration + dice.expovariate(0.5)), endpoint.url, [endpoint.key], "plan",
        started - planned, dice.choice(_WORKERS), _tenth(duration), code, None, "", None,
        timings | {"first_byte_ms": _tenth(first_byte)}, endpoint.address, body, "" if number == 1 else "schedule",
    )  # fmt: skip


def _tenth(milliseconds: float) -> float:
    return int(milliseconds * 10) / 10


def _raw_id(at: int, dice: random.Random) -> bytes:
    """Return a UUIDv7 with 74 random bits. Ids of one process share some of these bits, which would compress better."""
    raw = bytearray(at.to_bytes(6, "big") + dice.randbytes(10))
    raw[6], raw[8] = 0x70 | raw[6] & 0x0F, 0x80 | raw[8] & 0x3F
    return bytes(raw)


def columns(path: Path) -> dict[str, int]:
    """Return the bytes of each column in a file."""
    found: dict[str, int] = {}
    metadata = pq.ParquetFile(path).metadata
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name = column.path_in_schema.partition(".")[0]
            found[name] = found.get(name, 0) + column.total_compressed_size
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=200_000)
    count = parser.parse_args().deliveries
    loading.COLUMNS["unsealed"] = ("account", "id")
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        runtime = app.open_for_start(Settings(data=str(directory / "data"), dev=True))
        with closing(runtime.store) as store:
            assert runtime.created is not None
            account = runtime.created.account
            today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
            first = clock.milliseconds(today - timedelta(days=1))
            loading.put(directory / "data", "", day(ids.raw(account.id), first, count, random.Random(7)))
            key = runtime.service.keys.seal
            while store.run_now(lambda tx: sealing.seal_batch(tx, key, account.id)):
                pass
            period = manifest.period((today - timedelta(days=1)).date(), today.date(), store.now())
            began = time.process_time()
            accounts = [each for each in lookup.every(store) if each.id == account.id]
            made = export.export(Source(store, key, ""), accounts, period, directory / "archive")
            took = time.process_time() - began
        for name, file in made.files.items():
            print(f"{name}: {file.rows} rows, {file.bytes / file.rows:.1f} bytes a row")
            sizes = columns(directory / "archive" / name)
            print("  " + ", ".join(f"{column} {size / file.rows:.2f}" for column, size in sizes.items()))
        deliveries, attempts = made.files["deliveries.parquet"], made.files["attempts.parquet"]
        bodies = columns(directory / "archive" / "attempts.parquet")["response"]
        size = deliveries.bytes + attempts.bytes - bodies
        print(f"a delivery with its {attempts.rows / deliveries.rows:.2f} attempts: {size / deliveries.rows:.1f} bytes")
        print(f"response bodies aside, of {bodies / attempts.rows:.1f} bytes each")
        print(f"CPU of writing and verifying: {took / count * 1e6:.0f} microseconds a delivery")


if __name__ == "__main__":
    main()
