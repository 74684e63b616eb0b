"""Nodes: every `gatepost serve` on a database is listed by `gatepost doctor` and counted in the metrics."""

import socket
from functools import partial
from pathlib import Path

import requests

from gatepost import __version__
from gatepost.core.clock import milliseconds
from gatepost.store import nodes
from tests import service
from tests.figures import read
from tests.service import Service
from tests.waiting import LIMIT, wait_until


def listed(running: Service) -> list[tuple[str, str]]:
    checks = running.cli_json("doctor") if running.process.poll() is None else []
    return [(check["status"], check["found"].partition(",")[0]) for check in checks if check["check"] == "node"]


def test_nodes_on_one_database(tmp_path: Path, postgres_url: str) -> None:
    with service.running(tmp_path / "all", postgres_url) as running:
        store, host = running.opened.store, socket.gethostname()
        [ops_port] = service.free_ports(1)
        killed = nodes.this_node("web", f"127.0.0.1:{ops_port}", 0)
        store.run_now(lambda tx: tx.write("beat_node", **(killed._asdict() | {"beat_at": tx.now})))
        with service.running(tmp_path / "web", postgres_url, only="web", ops_port=str(ops_port)):
            found = [("ok", f"{host} (all"), ("ok", f"{host} (web")]
            wait_until(lambda: listed(running) == found, "both nodes to be listed")

            def counted() -> dict[str, float]:
                text = requests.get(f"{running.ops}/metrics", timeout=LIMIT).text
                figures = {(name, dict(labels).get("kind", "")): value for (name, labels), value in read(text).items()}
                return {
                    "all": figures["gatepost_nodes", "all"],
                    "web": figures["gatepost_nodes", "web"],
                    "workers": figures["gatepost_workers", ""],
                }

            assert counted() == {"all": 1, "web": 1, "workers": 1}
        assert listed(running) == found[:1]  # the other has stopped
        dead = nodes.Node(bytes(16), "elsewhere", "all", __version__, 0, 0)
        silent_since = milliseconds(store.now()) - 2 * nodes.SILENT_AFTER
        store.run_now(partial(nodes.beat, node=dead))
        store.run_now(lambda tx: tx.write("beat_node", **(dead._asdict() | {"beat_at": silent_since})))
        assert ("warning", "elsewhere (all") in listed(running)
