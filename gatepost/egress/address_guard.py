"""Where requests may be sent: rules for URLs when they are defined, and for addresses when a connection is made.

Nothing is sent or resolved. A function returns a problem as text, or "" if there is none. The text never contains an
address. With an egress proxy, the proxy checks host names, and only the URL itself is checked here.
"""

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from gatepost.core.json_schema import HOST, PATH_AND_QUERY, string

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Policy(NamedTuple):
    """The rules for one account."""

    allow_networks: tuple[Network, ...] = ()  # networks that the operator allows this account
    dev: bool = False  # allows http and private targets
    own: tuple[tuple[str, int], ...] = ()  # host and port of Gatepost's own listeners: never a target, even with dev
    proxy: str = ""  # the egress proxy, which then checks addresses


class Special(NamedTuple):
    """A network that no public receiver has an address in."""

    network: Network
    description: str
    in_dev: bool = False  # allowed for development


def _special(description: str, *networks: str, in_dev: bool = False) -> list[Special]:
    return [Special(ip_network(network), description, in_dev) for network in networks]


# The first match wins. From the IANA special-purpose registries, and the metadata services of clouds.
SPECIAL = [
    *_special(
        "a cloud's metadata service",
        "169.254.169.254/32",
        "169.254.170.2/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
    ),
    *_special("no address at all (unspecified)", "0.0.0.0/8", "::/128"),
    *_special("a machine itself (loopback)", "127.0.0.0/8", "::1/128", in_dev=True),
    *_special("a private network", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", in_dev=True),
    *_special("a carrier's private network", "100.64.0.0/10", in_dev=True),
    *_special("a link-local address", "169.254.0.0/16", "fe80::/10"),
    *_special("a site-local address", "fec0::/10"),
    *_special("a multicast address", "224.0.0.0/4", "ff00::/8"),
    *_special("a network for documentation", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    *_special("a network for documentation", "2001:db8::/32", "3fff::/20"),
    *_special("a network for benchmarks", "198.18.0.0/15", "2001:2::/48"),
    *_special("a reserved network", "192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4"),
    *_special("an IPv4 address written as IPv6 (mapped)", "::ffff:0:0/96", "::ffff:0:0:0/96"),
    *_special("an IPv4 address written as IPv6 (compatible)", "::/96"),
    *_special("an IPv4 address written as IPv6 (NAT64)", "64:ff9b::/96", "64:ff9b:1::/48"),
    *_special("an IPv4 address written as IPv6 (6to4)", "2002::/16"),
    *_special("an IPv4 address written as IPv6 (Teredo)", "2001::/32"),
    *_special("a reserved network", "100::/64", "100:0:0:1::/64", "2001::/23", "5f00::/16"),
]
UNICAST = IPv6Network("2000::/3")  # the part of IPv6 that is allocated for public use

METADATA_NAMES = {
    "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal",
    "metadata.azure.internal", "metadata.azure.com", "metadata.tencentyun.com", "rancher-metadata",
}  # fmt: skip
PRIVATE_NAMES = ("internal", "local", "localdomain", "home.arpa")  # RFC 6762, RFC 8375, and ICANN's reserved .internal

MAX_URL = 2048
URL_SCHEMA = string(
    1,
    MAX_URL,
    expects=f"an https URL of at most {MAX_URL} printable ASCII characters, without user, fragment or backslash",
    pattern=f"^https?://{HOST}{PATH_AND_QUERY}$",
)
_URL = re.compile(r"(https?)://([^/?]*)(?:[/?].*)?")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def address_problem(policy: Policy, address: str, port: int) -> str:
    """Why no connection to this address may be made."""
    try:
        ip = ip_address(address)
    except ValueError:
        return "leads to an invalid address"
    unmapped = (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip
    if any(_reaches(host, unmapped) for host, own_port in policy.own if own_port == port):
        return "leads to Gatepost itself"
    if any(ip in network or unmapped in network for network in policy.allow_networks):
        return ""
    checked = unmapped if policy.dev else ip
    special = next((special for special in SPECIAL if checked in special.network), None)
    if special is not None:
        return "" if policy.dev and special.in_dev else f"leads to {special.description}"
    return "" if checked.version == 4 or checked in UNICAST else "leads to an unallocated address"


def _reaches(listener: str, ip: Address) -> bool:
    """Whether a connection to this address, at the listener's port, is known to reach the listener."""
    if _is_local_name(_normalized(listener)):
        return _is_local(ip)
    try:
        own = ip_address(listener)
    except ValueError:
        return False
    return own == ip or (_is_local(own) and _is_local(ip)) or (own.is_unspecified and _is_of_this_machine(ip))


def _is_of_this_machine(ip: Address) -> bool:
    """Whether an interface has this address: the system then uses it as the source too. No packet is sent."""
    with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(ip), 9))
        except OSError:  # there is no route
            return False
        return ip_address(probe.getsockname()[0].partition("%")[0]) == ip


def _is_local(ip: Address) -> bool:
    return ip.is_loopback or ip.is_unspecified


def url_problem(policy: Policy, url: str) -> str:
    """Why this cannot be an endpoint's URL, and what is required."""
    if len(url) > MAX_URL:
        return f"must have at most {MAX_URL} characters"
    if not url.isascii():
        return "must be ASCII: write a host name of another script as xn--…, and other characters as %XX"
    if not all("!" <= char <= "~" for char in url) or "\\" in url:
        return "must have no space, backslash or control character"
    parts = _URL.fullmatch(url)
    if parts is None or (parts[1] == "http" and not policy.dev):
        return "must be a URL that starts with " + ("http:// or https://" if policy.dev else "https://")
    if "#" in url:
        return "must have no fragment (#…)"
    if "@" in parts[2]:
        return "must have no user or password before the host; use headers or check the signature"
    authority = _AUTHORITY.fullmatch(parts[2])
    if authority is None:
        return "must have a host, as in https://example.com/hooks, and after it at most a port"
    port = int(authority[2] or {"http": 80, "https": 443}[parts[1]])
    if not (port in ({80, 443} if policy.dev else {443}) or 1024 <= port <= 65535):
        return "must use port 443 or one from 1024 to 65535"
    return _host_problem(policy, authority[1], port)


def _host_problem(policy: Policy, host: str, port: int) -> str:
    if host.startswith("["):
        return address_problem(policy, host[1:-1], port)
    name = host.lower()
    if _NUMBER.fullmatch(name.rstrip(".").rpartition(".")[2]):
        if not _is_ipv4(name):
            return "must have an IPv4 address in its usual form: four decimal numbers without leading zeros"
        return address_problem(policy, name, port)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        return "must have a host name of letters, digits and hyphens, without a dot at its end"
    return _name_problem(policy, name, port)


def _is_ipv4(text: str) -> bool:
    """Whether this is an IPv4 address in canonical form. Resolvers also accept 127.1, 0177.0.0.1 and 2130706433."""
    try:
        return str(IPv4Address(text)) == text
    except ValueError:
        return False


def _name_problem(policy: Policy, name: str, port: int) -> str:
    if name in METADATA_NAMES:
        return "leads to a cloud's metadata service"
    if any(_normalized(host) == name for host, own_port in policy.own if own_port == port):
        return "leads to Gatepost itself"
    if _is_local_name(name):
        problems = [address_problem(policy, address, port) for address in ("127.0.0.1", "::1")]
        return problems[0] if all(problems) else ""
    if policy.dev or policy.allow_networks:
        return ""
    if "." not in name:
        return "must have a full host name, with a dot in it"
    if name.endswith(tuple(f".{private}" for private in PRIVATE_NAMES)):
        return "must have a public host name, not one of a private network"
    return ""


def _normalized(host: str) -> str:
    return host.lower().rstrip(".")


def _is_local_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")  # RFC 6761, section 6.3
