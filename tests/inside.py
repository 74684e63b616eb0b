"""The gatepost command run inside the test's own process: hundreds are run, and a process costs a third of a second.

What a process of its own adds, the start of `python -m gatepost`, is shown where services are started, by the tests of
the documentation, and by those that kill commands or watch them write.
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

_ONE_AT_A_TIME = threading.Lock()  # what is put in place below belongs to the whole process


def run(
    arguments: tuple[str, ...], environment: Mapping[str, str], *, check: bool, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` would have it."""
    code = 0
    with _ONE_AT_A_TIME, _placed(arguments, environment, stdin or "") as (out, err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        out.flush()
        err.flush()
        said, complained = (each.buffer.getvalue().decode() for each in (out, err))
    done = subprocess.CompletedProcess(["gatepost", *arguments], code, said, complained)
    if check and code:
        raise AssertionError(f"{done.args} ended with {code}: {said}{complained}")
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
