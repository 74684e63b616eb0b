"""A peer's process: started on a free port of this machine, ready when it answers, stopped by its own handle."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from bench.load import ROOT, Target, ask

CACHE = ROOT / ".cache" / "bench"
READY_SECONDS = 30
STOP_SECONDS = 10


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def serving(command: Sequence[str | Path], port: int, folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Run the command until the block ends; where Linux can, it also ends when this process is killed."""
    guard = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*guard, *command], cwd=folder, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            if not _connects(process, port):
                log.seek(0)
                raise RuntimeError(f"{command[0]} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _connects(process: subprocess.Popen[bytes], port: int) -> bool:
    end = monotonic() + READY_SECONDS
    while process.poll() is None and monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            sleep(0.05)
        else:
            return True
    return False


def token(target: Target) -> str:
    """One access token, to know that what will be measured works."""
    status, body = ask(target)
    if status != 200:
        raise RuntimeError(f"{target.url} answered {status}: {body[:500]!r}")
    issued: str = json.loads(body)["access_token"]
    return issued
