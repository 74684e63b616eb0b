"""Failover of a Patroni cluster with strict synchronous replication: nothing that was acknowledged is lost."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patroni, service
from tests.chaos.load import Load, check_ledger
from tests.chaos.publishing import Publishing, check_events
from tests.flows.shop import opening
from tests.patroni import Cluster

pytestmark = pytest.mark.xdist_group("patroni")

KILLS = max(1, int(os.environ.get("GATEPOST_TEST_KILLS", "0")) // 20)  # a failover takes much longer than a restart


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

            for _ in range(KILLS):
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
