"""Settings of the service: from options, the environment (`GATEPOST_*`) or a TOML file, in order of precedence."""

import ipaddress
import os
import re
import ssl
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

import msgspec

from gatepost.accounts import NAME
from gatepost.core.errors import BadSetting
from gatepost.core.json_schema import HOST
from gatepost.oauth import shared_resources
from gatepost.oauth.shared_resources import SharedResource

PREFIX = "GATEPOST_"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 (only compared with)


_SERVER = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
_KAFKA_NAME = r"[A-Za-z0-9._-]{1,249}"
_KAFKA = re.compile(
    rf"kafka://(?P<servers>{_SERVER}(,{_SERVER})*)/(?P<topics>{_KAFKA_NAME}(,{_KAFKA_NAME})*)"
    rf"(\?group=(?P<group>{_KAFKA_NAME}))?"
)


class KafkaTopics(NamedTuple):
    """The topics of a Kafka cluster from which events are consumed, and the consumer group."""

    servers: str
    topics: list[str]
    group: str


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every setting with its default. The reference docs print this table."""

    host: str = "127.0.0.1"
    port: int = 8080
    ops_host: str = "127.0.0.1"
    ops_port: int = 9090
    data: str = "./gatepost-data"
    database: str = ""
    database_listen: str = ""
    base_url: str = ""
    protocol: Literal["full", "six"] = "full"
    workers: int = 1
    deliverers: int = 1
    only: Literal["", "web", "deliver"] = ""
    dev: bool = False
    master_key: str = ""
    master_key_file: str = ""
    checkpoints: str = ""
    shared_resources: dict[str, SharedResource] = {}
    trusted_proxies: list[str] = []
    max_requests_per_address: int = 256
    ops_allowed_hosts: list[str] = []
    operator_console: bool = False
    docs_url: str = ""
    intake: Literal["", "off", "http"] = ""
    allow_networks: dict[str, list[str]] = {}
    egress_proxy: str = ""
    egress_ca: str = ""
    nats: str = ""
    nats_stream: str = "gatepost"
    bus: str = ""
    bus_config: str = ""

    @property
    def takes_events(self) -> bool:
        """Whether the operations plane has POST /events. With --dev it has, unless `intake` is off."""
        return self.intake == "http" or (self.dev and self.intake != "off")

    @property
    def issuer(self) -> str:
        """The base URL: the issuer of every token, and the prefix of every link."""
        if self.base_url:
            return self.base_url
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def data_directory(self) -> Path:
        return Path(self.data)

    @property
    def sqlite_file(self) -> Path:
        return self.data_directory / "gatepost.db"

    @property
    def checkpoints_file(self) -> Path:
        """The file with the signed checkpoints of all ledgers."""
        return Path(self.checkpoints) if self.checkpoints else self.data_directory / "checkpoints.jsonl"

    @property
    def key_file(self) -> Path:
        return Path(self.master_key_file) if self.master_key_file else self.data_directory / "master.key"

    @property
    def kafka(self) -> KafkaTopics | None:
        """The topics that `bus` names."""
        parts = _KAFKA.fullmatch(self.bus)
        return (
            KafkaTopics(parts["servers"], parts["topics"].split(","), parts["group"] or "gatepost") if parts else None
        )

    def __repr__(self) -> str:
        return f"Settings(issuer={self.issuer!r})"


NAMES = [field.name for field in msgspec.structs.fields(Settings)]
_POSTGRES = ("postgresql://", "postgres://")
_LISTS = ("trusted_proxies", "ops_allowed_hosts")
_FOR_COMMANDS = ("config", "account", "remote", "profile", "client_id", "client_secret")  # variables, but not settings
_EXPECTED = {int: "a whole number", bool: "true or false", str: "a text", list[str]: "a list of texts"}
_ALLOW_NETWORKS_FORM = (
    "allow_networks: list the networks of each account by its name; in the settings file write "
    'allow_networks = { "acme" = ["10.20.0.0/16"] }, in the environment '
    'GATEPOST_ALLOW_NETWORKS="acme=10.20.0.0/16,fd12::/48 other=10.30.0.0/16"'
)
_FORMS = {"allow_networks": _ALLOW_NETWORKS_FORM, "shared_resources": shared_resources.NEW_FORM}


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, config: str = "") -> Settings:
    """Read and check the settings. An error message names the setting and what is required."""
    environment = os.environ if environment is None else environment
    file = config or environment.get(PREFIX + "CONFIG", "")
    in_file, in_environment = _from_file(file), _from_environment(environment)
    given = {name: value for name, value in flags.items() if value is not None}
    sources = {name: f"{file}: {name}" for name in in_file}
    sources |= {name: PREFIX + name.upper() for name in in_environment} | {name: name for name in given}
    try:
        return _checked(in_file | in_environment | given)
    except BadSetting as error:
        name, colon, problem = str(error).partition(":")
        source = name if name in _FORMS else sources.get(name, name)  # a form names the file and the environment itself
        raise BadSetting(f"{source}{colon}{problem}") from None


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have Gatepost's prefix but no meaning, each with the most similar name, or ""."""
    known = [name.upper() for name in (*NAMES, *_FOR_COMMANDS)]
    names = (variable.removeprefix(PREFIX) for variable in environment if variable.startswith(PREFIX))
    unknown = [name for name in names if name not in known and not name.startswith("TEST_")]
    similar = {name: get_close_matches(name, known, 1) for name in unknown}
    return {PREFIX + name: PREFIX + similar[name][0] if similar[name] else "" for name in unknown}


def _checked(values: dict[str, Any]) -> Settings:
    for field in msgspec.structs.fields(Settings):
        if field.name in values:
            _check_type(field.name, field.type, values[field.name])
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"settings: {error}") from None
    _check(settings)
    return settings


def _check_type(name: str, type_: Any, value: Any) -> None:
    try:
        msgspec.convert(value, type_, strict=False)
    except msgspec.ValidationError as error:
        choices = " or ".join(choice or "empty" for choice in get_args(type_)) if get_origin(type_) is Literal else ""
        expected = choices or _EXPECTED.get(type_, "")
        if not expected:
            raise BadSetting(_FORMS.get(name) or f"{name}: {error}") from None
        raise BadSetting(f"{name}: must be {expected}" + ("" if type_ is str else f", not {value!r}")) from None


def _from_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        values = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} is not TOML: {error}") from None
    unknown = sorted(set(values) - set(NAMES))
    if unknown:
        raise BadSetting(f"{path}: unknown setting {unknown[0]!r}; the settings are: {', '.join(NAMES)}")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """An empty variable counts as not set: Compose and other tools pass variables on that have no value."""
    variables = {name: PREFIX + name.upper() for name in NAMES}
    return {name: _from_text(name, environment[key]) for name, key in variables.items() if environment.get(key)}


def _from_text(name: str, text: str) -> Any:
    if name == "allow_networks":
        return _networks_by_account(text)
    if name == "shared_resources":
        return _object(text)
    return text.replace(",", " ").split() if name in _LISTS else text


def _object(text: str) -> Any:
    """Parse a JSON value: {} for an empty text, None if the text is not JSON."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return None


def _networks_by_account(text: str) -> dict[str, list[str]]:
    """Parse `acme=10.20.0.0/16,fd12::/48 other=10.30.0.0/16`."""
    by_account: dict[str, list[str]] = {}
    for part in text.split():
        account, equals, networks = part.partition("=")
        if not equals:
            raise BadSetting(_ALLOW_NETWORKS_FORM)
        if account in by_account:
            raise BadSetting(f"allow_networks: the account {account!r} is repeated; separate its networks by commas")
        by_account[account] = networks.split(",")
    return by_account


def _check(settings: Settings) -> None:
    for name, most in (("port", 65535), ("ops_port", 65535), ("workers", 64), ("deliverers", 64)):
        if not 1 <= getattr(settings, name) <= most:
            raise BadSetting(f"{name}: must be from 1 to {most}")
    if settings.port == settings.ops_port and settings.host == settings.ops_host:
        raise BadSetting("ops_port: must differ from port")
    _check_listeners(settings)
    if settings.database and not settings.database.startswith(_POSTGRES):
        raise BadSetting("database: must be a postgresql:// URL; omit it to use SQLite in the data directory")
    if settings.database_listen and not settings.database_listen.startswith(_POSTGRES):
        raise BadSetting("database_listen: must be a postgresql:// URL that leads to the server without a pooler")
    if not settings.base_url and settings.host not in LOOPBACK:
        raise BadSetting(f"base_url: required when host is not a loopback address ({settings.host})")
    _check_base_url(settings.issuer)
    _check_networks(settings)
    _check_nats(settings)
    _check_bus(settings)
    problem = shared_resources.problem(settings.shared_resources, settings.issuer)
    if problem:
        raise BadSetting(f"shared_resources: {problem}")


def _check_listeners(settings: Settings) -> None:
    if not 0 <= settings.max_requests_per_address <= 100_000:
        raise BadSetting("max_requests_per_address: must be from 1 to 100000, or 0 for no limit")
    for host in settings.ops_allowed_hosts:
        if not re.fullmatch(HOST, host) or host != host.lower():
            raise BadSetting(
                f"ops_allowed_hosts: {host!r} must be a host in lower case, with the port if the URL has one, "
                "such as ops.example.com or ops.example.com:9443"
            )
    if settings.docs_url and not _is_docs_url(settings.docs_url):
        raise BadSetting("docs_url: must be an http(s) URL without query, fragment or trailing slash")


def _is_docs_url(text: str) -> bool:
    return bool(re.fullmatch(rf"https?://{HOST}(/[!-~]*)?", text)) and not re.search(r'["\\?#]|/$', text)


def _check_networks(settings: Settings) -> None:
    _check_network_list("trusted_proxies", settings.trusted_proxies)
    for account, networks in settings.allow_networks.items():
        if not NAME.fullmatch(account):
            raise BadSetting(f"allow_networks: {account!r} is not a valid account name; use a-z, 0-9 and -")
        _check_network_list(f"allow_networks for {account}", networks)
    if settings.egress_proxy and not _is_proxy(settings.egress_proxy):  # the error must not contain its credentials
        raise BadSetting(
            "egress_proxy: must be http://host:port, https://host:port or socks5h://host:port, with a port from 1 to "
            "65535 and nothing after it; credentials are written as user:password@host, with special characters in "
            "percent-encoding"
        )
    if settings.egress_ca:
        _check_authorities(settings.egress_ca)


def _is_proxy(text: str) -> bool:
    """Whether libcurl can use this URL of a proxy. It would report an unusable one as a failure of each receiver."""
    url = _split(text)
    if url is None or not re.fullmatch(r"(http|https|socks5h)://[!-~]+", text):
        return False
    credentials, _, server = url.netloc.rpartition("@")
    return (
        re.fullmatch(HOST, server) is not None
        and url.port != 0
        and url.path in ("", "/")
        and not re.search(r"[?#]", text)
        and not re.search(r"@|%[01][0-9A-Fa-f]", credentials)
    )


def _check_authorities(file: str) -> None:
    """Check the file now: libcurl would report an unusable one as a failure of each receiver."""
    try:
        ssl.create_default_context(cafile=file)
    except FileNotFoundError:
        raise BadSetting(f"egress_ca: the file {file} does not exist") from None
    except ssl.SSLError:
        raise BadSetting(
            f"egress_ca: the file {file} contains no certificates in PEM format, or a damaged one"
        ) from None
    except OSError as error:
        raise BadSetting(f"egress_ca: the file {file} cannot be read: {error.strerror}") from None


def _check_network_list(name: str, networks: list[str]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise BadSetting(f"{name}: {error}") from None


def _check_nats(settings: Settings) -> None:
    if not re.fullmatch(r"[!-~]{1,255}", settings.nats_stream) or re.search(r"[.*>/\\]", settings.nats_stream):
        raise BadSetting("nats_stream: must be the name of a stream, without spaces, dots, slashes, * or >")
    if not settings.nats:
        return
    for server in settings.nats.split(","):
        if not _is_nats(server):
            raise BadSetting("nats: must be nats://host:port or tls://host:port; separate several by commas")
    if find_spec("nats") is None:
        raise BadSetting("nats: NATS needs an extra; run: pip install 'gatepost[nats]'")


def _check_bus(settings: Settings) -> None:
    if settings.bus_config and not settings.bus:
        raise BadSetting("bus: required with bus_config, such as kafka://host:9092/topic")
    if not settings.bus:
        return
    if settings.kafka is None:
        raise BadSetting(
            "bus: must be kafka://host:port/topic or kafka://host:port/topic?group=name; separate several servers or "
            "topics by commas, and write credentials to the file bus_config; the setting for NATS is nats"
        )
    topics = settings.kafka.topics
    if repeated := sorted({topic for topic in topics if topics.count(topic) > 1}):
        raise BadSetting(f"bus: the topic {repeated[0]} is repeated; name each topic once")
    if find_spec("confluent_kafka") is None:
        raise BadSetting("bus: Kafka needs an extra; run: pip install 'gatepost[kafka]'")


def _is_nats(server: str) -> bool:
    url = _split(server)
    has_host = url is not None and not (url.path or url.query or url.fragment)
    return has_host and re.fullmatch(r"(nats|tls)://[!-~]+", server) is not None


def _split(text: str) -> SplitResult | None:
    """Return the parts of a URL that has a host, or None. A port must be a number."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url if url.hostname else None


def _check_base_url(base_url: str) -> None:
    url = _split(base_url)
    if url is None or url.scheme not in ("https", "http"):
        raise BadSetting("base_url: must be https://host or https://host:port")
    if url.path or url.query or url.fragment or url.username is not None or base_url.endswith(("?", "#")):
        raise BadSetting("base_url: must have no path, query, user or trailing slash")
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        raise BadSetting("base_url: http is allowed only on loopback; use https")
    if base_url != base_url.lower():
        raise BadSetting("base_url: must be in lower case, because it is compared byte for byte")
    if base_url != f"{url.scheme}://{url.netloc}" or not re.fullmatch(HOST, url.netloc):
        raise BadSetting("base_url: must be https://host or https://host:port, with an ASCII name or an address")
