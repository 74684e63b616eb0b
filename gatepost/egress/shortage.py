"""Shortages: a request was not sent because this process or machine lacked something. The receiver is not to blame."""

import errno
import socket
from contextlib import ExitStack
from typing import Any, NamedTuple

RESOURCES = {
    errno.EMFILE: "files",
    errno.ENFILE: "files",
    errno.ENOBUFS: "buffers",
    errno.ENOMEM: "memory",
    errno.EADDRNOTAVAIL: "ports",
}
_SPARE = 4  # files that a look-up has open at the same time


class Shortage(NamedTuple):
    resource: str


def resource_of(error: OSError) -> str:
    """What was lacking, or nothing if that is not why it failed. A `gaierror` has numbers of its own."""
    return "" if isinstance(error, socket.gaierror) else RESOURCES.get(error.errno or 0, "")


def of_connect(number: int, address: Any) -> str:
    """What was lacking for a connection to this address (as libcurl passes it), which failed with this `errno`."""
    if number == errno.EADDRNOTAVAIL and (address is None or not _has_source_address(address)):
        return ""  # this machine has no address of that family: no port would help
    return RESOURCES.get(number, "")


def _has_source_address(address: Any) -> bool:
    """Whether this machine has an address to reach that one from. A datagram socket is connected; nothing is sent."""
    try:
        with socket.socket(address.family, socket.SOCK_DGRAM) as probe:
            probe.connect(address.addr)
    except OSError:
        return False
    return True


def lacking() -> str:
    """What is lacking right now for what a library does by itself, such as looking up a name or reading a file.

    Libraries hide the reason. With too few files glibc says that a name does not exist or that no server answers.
    """
    with ExitStack() as held:
        try:
            for _ in range(_SPARE):
                held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError as error:
            return resource_of(error)
    return ""
