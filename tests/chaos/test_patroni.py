"""Failover of a Patroni cluster with strict synchronous replication: nothing that was acknowledged is lost."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import patroni, pgbouncer, service
from tests.chaos.load import Load, check_ledger
from tests.chaos.nodes import NodeLoad, check_everything, platform_on, running_nodes
from tests.chaos.publishing import Publishing, check_events
from tests.flows.shop import opening
from tests.patroni import Cluster
from tests.postgres import OWNER
from tests.receiver import receiver

pytestmark = pytest.mark.xdist_group("patroni")

KILLS = int(os.environ.get("GATEPOST_TEST_KILLS", "3"))
FAILOVERS = max(1, KILLS // 20)  # a failover takes much longer than a restart


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with patroni.running() as found:
        yield found


def test_failovers_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """Prints how long commits were impossible for any client, and how much later the service was back."""
    database = cluster.create_database("failovers")
    with service.running(tmp_path / "data", database) as running, opening(running, "shop") as shop:
        _, client = running.account("busy")
        with Load(running, client, threads=2) as load, Publishing(shop, pause=0.1) as publishing:

            def wait_until_back(what: str, since: float) -> None:
                cluster.wait_for_commit()
                committed = time.monotonic()
                load.wait_for_tokens(1)
                issued = time.monotonic()
                publishing.wait_for_events(2)
                print(f"{what}: commits again after {committed - since:.1f} s, tokens {issued - committed:.1f} s later")

            load.wait_for_tokens(20)
            publishing.wait_for_events(5)

            for _ in range(FAILOVERS):
                killed = cluster.wait_for("leader")
                since = time.monotonic()
                killed.kill()
                wait_until_back("kill -9 of the primary", since)
                killed.start()
                cluster.wait_until_complete()

            since = time.monotonic()
            cluster.switch_over()
            wait_until_back("switchover", since)

            cluster.wait_until_complete()
            standby = cluster.wait_for("sync_standby")
            since = time.monotonic()
            standby.signal(signal.SIGSTOP)  # it neither answers nor closes connections, as behind a partition
            try:
                wait_until_back("partition of the synchronous standby", since)
            finally:
                standby.signal(signal.SIGCONT)

            since = time.monotonic()
            for instance in cluster.instances:
                instance.kill()
            for instance in cluster.instances:
                instance.start()
            wait_until_back("restart of all", since)
        assert load.broken == 0
        check_ledger(running, load)
        check_events(shop, publishing)
        assert "asynchronous" not in running.cli("doctor").stdout


def test_nodes_poolers_and_primaries_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Three nodes that reach the cluster through a PgBouncer before each instance. Prints the number of attempts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed service leaves files there
    cluster.create_database("killed")
    chance = random.Random(11)
    with ExitStack() as stack:
        poolers = [stack.enter_context(pgbouncer.running(each.server, pool_size=10)) for each in cluster.instances]
        hosts = ",".join(f"127.0.0.1:{pooler.port}" for pooler in poolers)
        database = f"postgresql://{OWNER}@{hosts}/killed?target_session_attrs=read-write"
        found = stack.enter_context(receiver())
        nodes = stack.enter_context(running_nodes(tmp_path, database, 3))
        platform = platform_on(nodes[0], found.url)

        def kill_node() -> None:
            node = chance.choice(nodes)
            node.kill()
            load.wait_for(5)
            node.start()

        def kill_pooler() -> None:
            pooler = chance.choice(poolers)
            pooler.kill()
            pooler.start()

        def kill_primary() -> None:
            primary = cluster.wait_for("leader")
            primary.kill()
            load.wait_for(5)
            primary.start()
            cluster.wait_until_complete()

        def switch_over() -> None:
            cluster.switch_over()
            cluster.wait_until_complete()

        rare: list[Callable[[], None]] = [kill_primary, switch_over] * FAILOVERS
        faults = rare + [kill_node, kill_pooler] * max(1, (KILLS - FAILOVERS) // 2)
        chance.shuffle(faults)
        with NodeLoad(platform, nodes) as load:
            for cause in faults:
                load.wait_for(10)
                cause()
            load.wait_for(10)
        print(check_everything(platform, load, found))
