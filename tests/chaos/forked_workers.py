"""Starts delivery processes quickly, which are killed at a named step: `python -m tests.chaos.forked_workers`.

All modules are imported once. Each line of standard input is a JSON object with the configuration and an optional
`step`. For each line, a forked process runs `gatepost.run.delivery_process`, and its id is printed. At the line `null`
and at the end of the input, the processes that are still running are killed.
"""

import contextlib
import json
import os
import signal
import sys
from typing import Any, NoReturn

import msgspec
import uvloop

from gatepost.run import app, delivery_process
from gatepost.run.child import Configuration
from gatepost.webhooks.attempts import Attempts
from gatepost.webhooks.worker import Worker


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("killed")


def _before_sending(self: Attempts, _claim: Any) -> None:
    die()


def _cycling(original: Any, *, before: bool) -> Any:
    async def cycle(self: Worker, results: list[Any], turns: list[Any]) -> None:
        if results and before:
            die()
        await original(self, results, turns)
        if results:
            die()

    return cycle


# The steps at which a process can be killed, and the patch that kills it there.
STEPS: dict[str, Any] = {
    "claimed, not sent": lambda: setattr(Attempts, "send", _before_sending),
    "answered, not settled": lambda: setattr(Worker, "_cycle", _cycling(Worker._cycle, before=True)),
    "settled": lambda: setattr(Worker, "_cycle", _cycling(Worker._cycle, before=False)),
}


def child(order: bytes, step: str) -> NoReturn:
    if step:
        STEPS[step]()
    with contextlib.suppress(BaseException):
        found = msgspec.json.decode(order, type=Configuration)
        opened = app.open_for_use(found.settings)
        reader, _writer = os.pipe()
        os.dup2(reader, 0)  # standard input that never ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        uvloop.run(delivery_process.serve(found, opened))
        opened.store.close()
    os._exit(0)


def kill_all(processes: set[int]) -> None:
    for each in processes:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)
    processes.clear()


def main() -> None:
    alive: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if request is None:
            kill_all(alive)
            print(0, flush=True)
            continue
        number = os.fork()
        if number == 0:
            child(json.dumps(request["order"]).encode(), request["step"])
        alive.add(number)
        print(number, flush=True)
        for each in list(alive):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(each, os.WNOHANG)[0]:
                    alive.discard(each)
    kill_all(alive)


if __name__ == "__main__":
    main()
