"""Runs the gatepost command in the process of the test, which saves a third of a second for each command.

The start of `python -m gatepost` itself is covered where services are started, by the tests of the documentation, and
by tests that kill commands or read their output while they run.
"""

import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from unittest import mock

from gatepost.cli import main

_ONE_AT_A_TIME = threading.Lock()  # the replaced values below are global to the process


def run(
    arguments: tuple[str, ...], environment: Mapping[str, str], *, check: bool, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command, and return its result like `subprocess.run`."""
    code = 0
    with _ONE_AT_A_TIME, _placed(arguments, environment, stdin or "") as (out, err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        out.flush()
        err.flush()
        output, errors = (each.buffer.getvalue().decode() for each in (out, err))
    done = subprocess.CompletedProcess(["gatepost", *arguments], code, output, errors)
    if check and code:
        raise AssertionError(f"{done.args} ended with {code}: {output}{errors}")
    return done


@contextmanager
def _placed(
    arguments: tuple[str, ...], environment: Mapping[str, str], stdin: str
) -> Iterator[tuple["_Written", "_Written"]]:
    out, err = _Written(), _Written()
    mask = os.umask(0)
    os.umask(mask)
    with (
        tempfile.TemporaryFile("w+") as given,
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["gatepost", *arguments]),
        mock.patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        given.write(stdin)
        given.seek(0)
        try:
            yield out, err
        finally:
            os.umask(mask)


class _Written(io.TextIOWrapper):
    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", newline="", write_through=True)
