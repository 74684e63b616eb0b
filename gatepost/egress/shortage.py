"""Shortages: this process or machine ran out of a resource, so a request was not sent. The receiver is not at fault."""

import errno
import socket
from contextlib import ExitStack
from typing import Any, NamedTuple

import pycurl  # type: ignore[import-untyped]

RESOURCES = {
    errno.EMFILE: "files",
    errno.ENFILE: "files",
    errno.ENOBUFS: "buffers",
    errno.ENOMEM: "memory",
    errno.EADDRNOTAVAIL: "ports",
}
AUTHORITIES = "authorities"  # the file of certificate authorities cannot be used
_SPARE = 4  # files that a look-up opens at the same time
_LOOKUP_ERRORS = {pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY}


class Shortage(NamedTuple):
    """The resource that this process ran out of, as the result of an operation that was not performed."""

    resource: str


def resource_of(error: OSError) -> str:
    """The missing resource, or "" if the error has another cause. The numbers of a `gaierror` are not errnos."""
    return "" if isinstance(error, socket.gaierror) else RESOURCES.get(error.errno or 0, "")


def of_transfer(error: int, curl: Any, address: Any) -> str:
    """The missing resource when a transfer failed with this libcurl error, or "" if the error has another cause.

    `address` is the one that libcurl connected to last, or None.
    """
    if error == pycurl.E_OUT_OF_MEMORY:
        return "memory"
    if error == pycurl.E_SSL_CACERT_BADFILE:
        return missing_now() or AUTHORITIES
    if error in _LOOKUP_ERRORS:
        return missing_now()
    if error != pycurl.E_COULDNT_CONNECT:
        return ""
    number = curl.getinfo(pycurl.OS_ERRNO)
    if number == errno.EADDRNOTAVAIL and (address is None or not _has_source_address(address)):
        return ""  # this machine has no address of that family; it does not lack ports
    return RESOURCES.get(number, "")


def _has_source_address(address: Any) -> bool:
    """Whether this machine has a source address for connections to it. Connecting a datagram socket sends nothing."""
    try:
        with socket.socket(address.family, socket.SOCK_DGRAM) as probe:
            probe.connect(address.addr)
    except OSError:
        return False
    return True


def describe(resource: str) -> str:
    """Describe a shortage for the accounts that are affected."""
    if resource == AUTHORITIES:
        return "the service could not read its certificate authorities"
    return f"the service ran out of {resource}"


def missing_now() -> str:
    """The resource that a library lacks now for looking up a name or reading a file, or "" if it lacks none.

    Libraries hide the cause: without free file descriptors, glibc reports that a name does not exist.
    """
    with ExitStack() as probes:
        try:
            for _ in range(_SPARE):
                probes.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        except OSError as error:
            return resource_of(error)
    return ""
