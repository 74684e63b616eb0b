"""Shortages: this process or machine ran out of a resource, so a request was not sent. The receiver is not at fault."""

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
_SPARE = 4  # files that a look-up opens at the same time


class Shortage(NamedTuple):
    resource: str


def resource_of(error: OSError) -> str:
    """The missing resource, or "" if the error has another cause. The numbers of a `gaierror` are no errnos."""
    return "" if isinstance(error, socket.gaierror) else RESOURCES.get(error.errno or 0, "")


def of_connect(number: int, address: Any) -> str:
    """The missing resource when a connection to this address (as libcurl passes it) failed with this `errno`."""
    if number == errno.EADDRNOTAVAIL and (address is None or not _has_source_address(address)):
        return ""  # this machine has no address of that family; it does not lack ports
    return RESOURCES.get(number, "")


def _has_source_address(address: Any) -> bool:
    """Whether this machine has an address that can reach it. Connecting a datagram socket sends nothing."""
    try:
        with socket.socket(address.family, socket.SOCK_DGRAM) as probe:
            probe.connect(address.addr)
    except OSError:
        return False
    return True


def lacking() -> str:
    """The resource that is missing now for what a library does by itself, such as looking up a name or reading a file.

    Libraries hide the cause: without free file descriptors, glibc reports that a name does not exist.
    """
    with ExitStack() as held:
        try:
            for _ in range(_SPARE):
                held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError as error:
            return resource_of(error)
    return ""
