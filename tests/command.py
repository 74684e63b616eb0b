"""The gatepost command on a store without a running service."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg

from tests import inside, service
from tests.waiting import LIMIT_MS


@dataclass
class Alone:
    """A store and the environment of its commands. `execute` bypasses the service, as an intruder would."""

    directory: Path
    database: str
    environment: dict[str, str]

    def cli(
        self, *arguments: str, check: bool = True, stdin: str | None = None, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        given = {f"GATEPOST_{name.upper()}": value for name, value in settings.items()}
        return inside.run(arguments, self.environment | given, check=check, stdin=stdin)

    def cli_json(self, *arguments: str) -> Any:
        return json.loads(self.cli(*arguments, "--json").stdout)

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if self.database:
            with psycopg.connect(self.database, autocommit=True) as database:
                cursor = database.execute(statement.replace("?", "%s").encode(), parameters)
                return cursor.fetchall() if cursor.description else []
        connection = apsw.Connection(str(self.directory / "gatepost.db"))
        try:
            connection.set_busy_timeout(LIMIT_MS)
            return list(connection.execute(statement, parameters))
        finally:
            connection.close()


def alone(directory: Path, database: str = "", **settings: str) -> Alone:
    """Return the environment of a store that does not exist yet: `store migrate` creates it. The ports are free."""
    port, ops_port = service.free_ports(2)
    ports = {"port": str(port), "ops_port": str(ops_port)}
    return Alone(directory, database, service.environment(directory, database, **(ports | settings)))
