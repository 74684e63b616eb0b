"""A capacity model: from the load of a deployment and measured costs to processes, nodes, connections, cores and disk.

It extrapolates linearly from one machine. Measure your own before you buy others: `python -m bench.costs`.
"""

import math
from typing import NamedTuple

from gatepost.run.chores import SEAL_EVERY
from gatepost.run.fairness import weights
from gatepost.webhooks.schedule import SLOTS

DAY = 86_400  # seconds
BUSY = 0.6  # of a core: what is planned for each process and for PostgreSQL, so that peaks and failures have room


class Cost(NamedTuple):
    """The cost of one operation: CPU microseconds by kind of process, and bytes."""

    web: float = 0
    operations: float = 0
    deliverer: float = 0
    sealing: float = 0  # in the supervisor
    postgres: float = 0
    wal: float = 0
    stored: float = 0  # in tables and indexes
    sent: float = 0  # over the network, to clients and receivers, without TLS
    received: float = 0


# `python -m bench.costs` on 2 cores (PostgreSQL 15 with fsync on the same machine), 2026-11-17. Commits are shared, as
# on a busy deployment. A single request on an idle one costs more. The messages of refreshes and events, and responses
# to deliveries, are estimates.
TOKEN = Cost(web=205, sealing=21, postgres=42, wal=940, stored=760, sent=1180, received=290)
REFRESH = Cost(web=400, sealing=31, postgres=110, wal=1200, stored=820, sent=1180, received=330)
EVENT = Cost(operations=240, sealing=27, postgres=72, wal=1230, stored=860, sent=300, received=450)
DELIVERY = Cost(operations=38, deliverer=221, postgres=180, wal=2740, stored=2010, sent=520, received=60)
SEAL = Cost(sealing=220, postgres=200, wal=1280, stored=600)  # of an account, in addition to that of its entries
SEAL_MS = 0.8  # for each account: the supervisor seals one group of accounts after the other
CONNECTIONS = 7  # of each process, and of the supervisor of each node
ARCHIVED = 52  # bytes of a delivery with its attempt in an archive: `python -m bench.archive`

# Assumptions about one PostgreSQL primary, which were not measured.
PRIMARY_CORES = 64
PRIMARY_WAL = 400e6  # bytes a second, that disks and standbys keep up with
MANY_CONNECTIONS = 400  # without a pooler


class Load(NamedTuple):
    """The load of a deployment, as a rate that lasts."""

    tokens: float = 0  # a second
    refreshes: float = 0
    deliveries: float = 0
    deliveries_per_event: float = 1
    accounts: int = 1
    receiver_ms: float = 100
    retention: int = 30  # days, of events and deliveries
    audit_retention: int = 400  # days, of tokens
    cores: int = 8  # of a node

    @property
    def events(self) -> float:
        return self.deliveries / self.deliveries_per_event

    @property
    def entries(self) -> float:
        return self.tokens + self.refreshes + self.events


class Figure(NamedTuple):
    """A result, and the assumptions behind it."""

    name: str
    value: float
    unit: str
    because: str


class Capacity(NamedTuple):
    """What a load needs, and where the model sees a limit."""

    figures: list[Figure]
    warnings: list[str]

    def value(self, name: str) -> float:
        return next(figure.value for figure in self.figures if figure.name == name)


def capacity(load: Load) -> Capacity:
    """Compute what a load needs."""
    demand = _demand(load)
    deployments, sealing = demand.deployments, demand.sealing
    processes = _processes(load, demand)
    service_cores = math.fsum(map(demand.cores, ("web", "operations", "deliverer", "sealing")))
    nodes = max(2 * deployments, math.ceil(service_cores / load.cores))
    count = sum(int(figure.value) for figure in processes)
    notifying = sum(int(figure.value) for figure in processes[1:])  # NOTIFY or LISTEN: operations and deliverers
    connections = CONNECTIONS * (count + nodes) + notifying
    busy = f"CPU time planned at {BUSY:.0%} of a core"
    figures = [
        *processes,
        Figure("service cores", math.ceil(service_cores), "", f"{busy}, with sealing"),
        Figure("nodes", nodes, "", f"{load.cores} cores each, and two for each deployment in case one fails"),
        Figure("PostgreSQL cores", math.ceil(demand.cores("postgres")), "", f"{busy}, without standbys"),
        Figure("PostgreSQL primaries", deployments, "", f"at most {PRIMARY_CORES} cores and "
               f"{format_size(PRIMARY_WAL)} of WAL a second each, and one sealing supervisor"),
        Figure("connections", connections, "", f"{CONNECTIONS} for each process and each node's supervisor, and one "
               "more for each operations process and deliverer"),
        Figure("sealed within", round(sealing.seconds, 1), "s", f"{sealing.accounts:,.0f} accounts of a deployment in "
               f"turn, {SEAL_MS} ms each, and {TOKEN.sealing} µs for an entry"),
        *_disk(load, demand),
        Figure("network out", demand.total("sent"), "bytes/s", "responses, and deliveries of about 500 bytes, "
               "without TLS"),
        Figure("network in", demand.total("received"), "bytes/s", "requests, and events of about 450 bytes, without "
               "TLS"),
    ]  # fmt: skip
    return Capacity(figures, _warnings(demand, connections))


class Demand(NamedTuple):
    """Costs and their rates a second, the sealing of one deployment, and how many deployments there must be."""

    rates: list[tuple[Cost, float]]
    sealing: "Sealing"
    deployments: int
    reasons: list[str]  # why one is not enough

    def total(self, member: str) -> float:
        return math.fsum(getattr(cost, member) * rate for cost, rate in self.rates)

    def cores(self, member: str) -> float:
        return self.total(member) / 1e6 / BUSY


def _demand(load: Load) -> Demand:
    """Divide the accounts among more deployments until each of them is within the limits."""
    deployments, reasons = 1, list[str]()
    while True:
        sealing = _sealing(load.entries / deployments, math.ceil(load.accounts / deployments))
        demand = Demand([
            (TOKEN, load.tokens), (REFRESH, load.refreshes), (EVENT, load.events), (DELIVERY, load.deliveries),
            (SEAL, sealing.seals * deployments),
        ], sealing, deployments, reasons)  # fmt: skip
        limits = {
            f"{demand.cores('postgres'):,.0f} cores of PostgreSQL": demand.cores("postgres") / PRIMARY_CORES,
            f"{format_size(demand.total('wal'))} of WAL a second": demand.total("wal") / PRIMARY_WAL,
            f"{_rate(load.entries)} entries to seal": load.entries * TOKEN.sealing / 1e6 / BUSY,
        }
        needed = math.ceil(max(limits.values()))
        if needed <= deployments:
            return demand
        deployments, reasons = needed, reasons or [name for name, share in limits.items() if share > 1]


def _warnings(demand: Demand, connections: int) -> list[str]:
    warnings = []
    if demand.reasons:
        warnings.append(
            f"one PostgreSQL primary is not enough: {', '.join(demand.reasons)}. Distribute the store, or divide the "
            f"accounts among {demand.deployments} deployments with a primary each; see docs/explanation/capacity.md"
        )
    if demand.sealing.seconds > 2 * SEAL_EVERY:
        warnings.append(
            f"entries wait up to {demand.sealing.seconds:,.0f} s for their seal, because "
            f"one process seals {demand.sealing.accounts:,.0f} accounts in turn; more deployments seal sooner"
        )
    if connections / demand.deployments > MANY_CONNECTIONS:
        warnings.append(
            f"{connections // demand.deployments} connections to one PostgreSQL are many: use PgBouncer in "
            "transaction mode"
        )
    return warnings


def _processes(load: Load, demand: Demand) -> list[Figure]:
    slots = load.deliveries * load.receiver_ms / 1000
    by_cpu, by_slots = demand.cores("deliverer"), slots / (SLOTS * BUSY)
    limit = "slots" if by_slots > by_cpu else "CPU time"
    return [
        Figure("web processes", _processes_for(demand, demand.cores("web")), "",
               f"{TOKEN.web} µs for a token, {REFRESH.web} µs for a refresh"),
        Figure("operations processes", _processes_for(demand, demand.cores("operations")), "",
               f"{EVENT.operations} µs for an event by POST /events, and {DELIVERY.operations} µs for a delivery"),
        Figure("deliverers", _processes_for(demand, max(by_cpu, by_slots)), "",
               f"{DELIVERY.deliverer} µs for a delivery, and {slots:,.0f} in flight, with {SLOTS} slots in "
               f"each; limited by {limit}"),
    ]  # fmt: skip


def _processes_for(demand: Demand, cores: float) -> int:
    """At least one in each deployment."""
    return max(demand.deployments, math.ceil(cores))


def _disk(load: Load, demand: Demand) -> list[Figure]:
    tokens = (TOKEN.stored * load.tokens + REFRESH.stored * load.refreshes) * DAY
    events = (EVENT.stored * load.events + DELIVERY.stored * load.deliveries) * DAY
    seals = demand.total("stored") * DAY - tokens - events
    seal_days = load.audit_retention if tokens else load.retention  # a seal is kept as long as any of its entries
    kept = tokens * load.audit_retention + events * load.retention + seals * seal_days
    return [
        Figure("tables per day", tokens + events + seals, "bytes", f"{TOKEN.stored} bytes for a token, {EVENT.stored} "
               f"for an event, {DELIVERY.stored} for a delivery with its attempt, {SEAL.stored} for a seal"),
        Figure("tables", kept, "bytes", f"events and deliveries kept {load.retention} days, tokens and their seals "
               f"{load.audit_retention}"),
        Figure("WAL per day", demand.total("wal") * DAY, "bytes", f"{TOKEN.wal} bytes for a token, {EVENT.wal} for an "
               f"event, {DELIVERY.wal} for a delivery, {SEAL.wal} for a seal"),
        Figure("archive per day", ARCHIVED * load.deliveries * DAY, "bytes", f"{ARCHIVED} bytes for a delivery with "
               "its attempt, without events and responses"),
    ]  # fmt: skip


# --- sealing


class Sealing(NamedTuple):
    """A round of sealing: how long it takes, how many accounts it has, and seals a second."""

    seconds: float
    accounts: float
    seals: float


def _sealing(entries: float, accounts: int) -> Sealing:
    """A round seals the accounts that have entries since the last round, so a slow round makes the next one longer.

    The accounts have a Pareto-distributed load.
    """
    groups = _account_groups(accounts)
    seconds = SEAL_EVERY
    for _ in range(100):
        active = math.fsum(count * -math.expm1(-share * entries * seconds) for count, share in groups)
        needed = active * SEAL_MS / 1000 + entries * seconds * TOKEN.sealing / 1e6
        if needed <= seconds or seconds > DAY:
            break
        seconds = needed
    return Sealing(seconds, active, active / seconds)


def _account_groups(accounts: int) -> list[tuple[int, float]]:
    """Groups of accounts with similar loads: how many there are, and the mean share of each."""
    shares, groups, start = weights(accounts), [], 0
    while start < accounts:
        end = min(accounts, start + max(1, start // 8))
        groups.append((end - start, math.fsum(shares[start:end]) / (end - start)))
        start = end
    return groups


# --- text


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.3g}/s"


def format_size(size: float) -> str:
    """Format a number of bytes with a decimal unit and about three digits."""
    unit = "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000 or unit == "PB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if size >= 100 else f"{size:.3g} {unit}"
