"""A real PgBouncer in transaction mode before a PostgreSQL server of the tests, with few server connections."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests import programs
from tests.postgres import OWNER, Server
from tests.service import free_ports
from tests.waiting import wait_until

_CONFIGURATION = """
[databases]
* = host={directory} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users.txt
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 200
server_login_retry = 1
query_wait_timeout = 10
"""


class PgBouncer:
    """A PgBouncer that can be killed and started again."""

    def __init__(self, server: Server, pool_size: int) -> None:
        path = programs.find("pgbouncer")
        [self.port] = free_ports(1)
        file = server.directory / "pgbouncer.ini"
        (server.directory / "users.txt").write_text(f'"{OWNER}" ""\n')
        file.write_text(
            _CONFIGURATION.format(
                directory=server.directory, server_port=server.port, port=self.port, pool_size=pool_size
            )
        )
        self._program = programs.Program(server, "pgbouncer.log", path, str(file))

    def url(self, database: str) -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and return when connections are accepted."""
        self._program.start()
        wait_until(self._answers, "PgBouncer to accept connections")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        self._program.kill()


@contextmanager
def running(server: Server, pool_size: int = 2) -> Iterator[PgBouncer]:
    """A PgBouncer before this server, until the context ends."""
    bouncer = PgBouncer(server, pool_size)
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.kill()
