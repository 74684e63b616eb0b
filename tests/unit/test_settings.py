"""Settings: which source wins, which names there are, and which values are refused with what to do."""

import re
from pathlib import Path
from typing import Any

import certifi
import pytest

from gatepost.core.errors import BadSetting
from gatepost.oauth.shared_resources import SharedResource
from gatepost.settings import NAMES, Settings, load, unknown_variables

PUBLIC = {"base_url": "https://auth.example.com"}


def loaded(tmp_path: Path, toml: str = "", **flags: Any) -> Settings:
    config = tmp_path / "gatepost.toml"
    config.write_text(toml)
    return load(flags, {}, str(config))


class TestDefaults:
    def test_they_are_the_contracts(self) -> None:
        """Sections 1 and 10."""
        found = load({}, {})
        assert (found.host, found.port) == ("127.0.0.1", 8080)
        assert (found.ops_host, found.ops_port) == ("127.0.0.1", 9090)
        assert (found.data, found.database, found.workers) == ("./gatepost-data", "", 1)
        assert (found.protocol, found.only, found.dev) == ("full", "", False)
        assert (found.shared_resources, found.trusted_proxies) == ({}, [])

    def test_where_things_are(self) -> None:
        found = load({"data": "/var/lib/gatepost"}, {})
        assert found.sqlite_file == Path("/var/lib/gatepost/gatepost.db")
        assert found.key_file == Path("/var/lib/gatepost/master.key")
        assert load({"master_key_file": "/run/key"}, {}).key_file == Path("/run/key")

    @pytest.mark.parametrize(
        ("flags", "issuer"),
        [
            ({}, "http://127.0.0.1:8080"),
            ({"port": 80}, "http://127.0.0.1:80"),
            ({"host": "localhost"}, "http://localhost:8080"),
            ({"host": "::1", "port": 5}, "http://[::1]:5"),
            ({"base_url": "https://auth.example.com"}, "https://auth.example.com"),
        ],
    )
    def test_the_issuer(self, flags: dict[str, Any], issuer: str) -> None:
        assert load(flags, {}).issuer == issuer

    def test_no_key_is_printed(self) -> None:
        found = load({"master_key": "c2VjcmV0", "database": "postgresql://user:password@db/x"}, {})
        for text in (repr(found), str(found), f"{found}"):
            assert "c2VjcmV0" not in text
            assert "password" not in text


class TestPrecedence:
    ENVIRONMENT = {"GATEPOST_PORT": "2", "GATEPOST_DATA": "env"}  # noqa: RUF012 (a table)

    def test_flag_over_environment_over_file(self, tmp_path: Path) -> None:
        config = tmp_path / "gatepost.toml"
        config.write_text('port = 3\ndata = "toml"\nworkers = 3\n')
        found = load({"port": 1, "data": None}, self.ENVIRONMENT, str(config))
        assert (found.port, found.data, found.workers) == (1, "env", 3)

    def test_the_file_may_be_named_in_the_environment(self, tmp_path: Path) -> None:
        config = tmp_path / "gatepost.toml"
        config.write_text("port = 3")
        assert load({}, {"GATEPOST_CONFIG": str(config)}).port == 3
        other = tmp_path / "other.toml"
        other.write_text("port = 4")
        assert load({}, {"GATEPOST_CONFIG": str(config)}, str(other)).port == 4

    def test_an_absent_flag_is_not_one(self) -> None:
        assert load({"port": None}, {"GATEPOST_PORT": "2"}).port == 2
        assert load({"dev": False}, {"GATEPOST_DEV": "true"}).dev is False

    @pytest.mark.parametrize("name", NAMES)
    def test_every_setting_has_its_variable(self, name: str) -> None:
        texts = {
            "host": "localhost", "port": "81", "ops_host": "localhost", "ops_port": "82", "data": "d",
            "database": "postgresql://db/x", "database_listen": "postgresql://db/x",
            "base_url": "https://a.example", "protocol": "six", "workers": "2",
            "deliverers": "3",
            "only": "web", "dev": "true", "master_key": "k", "master_key_file": "f", "checkpoints": "c",
            "shared_resources": '{"https://b": {"scopes": ["s"]}}',
            "trusted_proxies": "10.0.0.0/8",
            "max_requests_per_address": "20",
            "ops_allowed_hosts": "ops.example.com",
            "operator_console": "true",
            "docs_url": "https://docs.example.com/gatepost",
            "intake": "http",
            "allow_networks": "acme=10.1.0.0/16,fd12::/48 other=10.2.0.0/16",
            "egress_proxy": "http://egress.example:3128",
            "egress_ca": certifi.where(),
            "nats": "nats://bus.example:4222",
            "nats_stream": "events",
            "bus": "kafka://bus.example:9092/events",
            "bus_config": __file__,
        }  # fmt: skip
        needed = {"GATEPOST_BUS": texts["bus"]} if name == "bus_config" else {}
        found = getattr(load({}, needed | {f"GATEPOST_{name.upper()}": texts[name]}), name)
        expected = {"port": 81, "ops_port": 82, "workers": 2, "deliverers": 3, "dev": True, "operator_console": True,
                    "shared_resources": {"https://b": SharedResource(["s"])},
                    "trusted_proxies": ["10.0.0.0/8"], "max_requests_per_address": 20,
                    "ops_allowed_hosts": ["ops.example.com"],
                    "allow_networks": {"acme": ["10.1.0.0/16", "fd12::/48"], "other": ["10.2.0.0/16"]}
                    }.get(name, texts[name])  # fmt: skip
        assert found == expected

    def test_other_variables_are_not_ours(self) -> None:
        assert load({}, {"PORT": "1", "HOST": "0.0.0.0", "gatepost_port": "1"}) == load({}, {})

    @pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
    def test_truth_in_the_environment(self, text: str, value: bool) -> None:
        assert load({}, {"GATEPOST_DEV": text}).dev is value


class TestNames:
    def test_an_unknown_one_in_the_file_is_named_with_those_there_are(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match=r"unknown setting 'prot'; the settings are: host, port, .*") as raised:
            loaded(tmp_path, "prot = 80")
        assert str(tmp_path) in str(raised.value)

    def test_a_table_in_the_file_is_unknown_too(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match="unknown setting 'gatepost'"):
            loaded(tmp_path, "[gatepost]\nport = 80")

    def test_an_unknown_flag_is_refused(self) -> None:
        with pytest.raises(BadSetting, match="prot"):
            load({"prot": 80}, {})


class TestFile:
    @pytest.mark.parametrize("toml", ["port", "port = ", "port == 1", "[", "port = 1\nport = 2"])
    def test_what_is_not_toml(self, tmp_path: Path, toml: str) -> None:
        with pytest.raises(BadSetting, match="is not TOML"):
            loaded(tmp_path, toml)

    def test_what_is_not_utf_8(self, tmp_path: Path) -> None:
        config = tmp_path / "gatepost.toml"
        config.write_bytes(b'data = "\xff"')
        with pytest.raises(BadSetting, match="is not TOML"):
            load({}, {}, str(config))

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match=r"cannot read .*nowhere\.toml: No such file"):
            load({}, {}, str(tmp_path / "nowhere.toml"))
        with pytest.raises(BadSetting, match="cannot read"):
            load({}, {}, str(tmp_path))


class TestLists:
    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("", []),
            ("10.0.0.0/8", ["10.0.0.0/8"]),
            ("10.0.0.0/8,192.0.2.1", ["10.0.0.0/8", "192.0.2.1"]),
            (" 10.0.0.0/8 ,, ::1 ", ["10.0.0.0/8", "::1"]),
            ("10.0.0.0/8 ::1", ["10.0.0.0/8", "::1"]),
        ],
    )
    def test_in_the_environment(self, text: str, values: list[str]) -> None:
        assert load({}, {"GATEPOST_TRUSTED_PROXIES": text}).trusted_proxies == values

    def test_in_the_file(self, tmp_path: Path) -> None:
        found = loaded(tmp_path, '[shared_resources."https://a"]\nscopes = ["s"]').shared_resources
        assert found == {"https://a": SharedResource(["s"])}

    @pytest.mark.parametrize("value", ["proxy", "10.0.0.1/8", "10.0.0.0/33", "*", "10.0.0.0/8;::1", "http://10.0.0.1"])
    def test_proxies_are_networks(self, value: str) -> None:
        with pytest.raises(BadSetting, match="trusted_proxies: "):
            load({"trusted_proxies": [value]}, {})

    @pytest.mark.parametrize("value", ["ops.example.com", "ops.example.com:9443", "10.0.0.5:9090", "[::1]:9090"])
    def test_further_hosts_of_the_operations_plane(self, value: str) -> None:
        assert load({}, {"GATEPOST_OPS_ALLOWED_HOSTS": value}).ops_allowed_hosts == [value]

    def test_an_empty_variable_counts_as_not_set(self, tmp_path: Path) -> None:
        file = tmp_path / "gatepost.toml"
        file.write_text("trusted_proxies = ['10.0.0.0/8']")
        variables = ("DATA", "PORT", "DEV", "MASTER_KEY", "TRUSTED_PROXIES")
        found = load({}, {f"GATEPOST_{name}": "" for name in variables}, config=str(file))
        assert found == load({}, {}, config=str(file))
        assert (found.data, found.trusted_proxies) == ("./gatepost-data", ["10.0.0.0/8"])

    @pytest.mark.parametrize("value", ["", "*", "https://ops.example.com", "Ops.example.com", "ops.example.com/"])
    def test_they_are_hosts(self, value: str) -> None:
        with pytest.raises(BadSetting, match="ops_allowed_hosts: "):
            load({"ops_allowed_hosts": [value]}, {})

    @pytest.mark.parametrize("value", ["docs", "ftp://a/", "https://a/", "https://a?b", "https://a/#b", 'https://a/"'])
    def test_the_address_of_the_docs_is_a_url(self, value: str) -> None:
        with pytest.raises(BadSetting, match="docs_url: "):
            load({"docs_url": value}, {})

    @pytest.mark.parametrize("value", [-1, 100_001])
    def test_the_limit_of_requests_has_bounds(self, value: int) -> None:
        with pytest.raises(BadSetting, match="max_requests_per_address: "):
            load({"max_requests_per_address": value}, {})

    @pytest.mark.parametrize("value", ["api", "https://a#b", "https://auth.example.com", "https://auth.example.com/",
                                       "urn:gatepost:acc_1", "HTTPS://a"])  # fmt: skip
    def test_shared_resources_are_resources(self, value: str) -> None:
        with pytest.raises(BadSetting, match="shared_resources: "):
            load(PUBLIC | {"shared_resources": {value: {"scopes": ["s"]}}}, {})

    def test_they_are_lists(self, tmp_path: Path) -> None:
        for value in ('"10.0.0.0/8"', "5", "[5]", "{}"):
            with pytest.raises(BadSetting):
                loaded(tmp_path, f"trusted_proxies = {value}")


class TestBaseURL:
    @pytest.mark.parametrize(
        "url",
        [
            "https://auth.example.com", "https://auth.example.com:8443", "https://localhost", "https://192.0.2.1",
            "https://[2001:db8::1]", "http://127.0.0.1", "http://127.0.0.1:8080", "http://localhost:8080",
            "http://[::1]:8080",
        ],
    )  # fmt: skip
    def test_right(self, url: str) -> None:
        assert load({"base_url": url}, {}).issuer == url
        assert load({"base_url": url, "host": "0.0.0.0"}, {}).issuer == url

    @pytest.mark.parametrize(
        ("url", "because"),
        [
            ("https://auth.example.com/", "no path"),
            ("https://auth.example.com/oauth", "no path"),
            ("https://auth.example.com?", "no path, query"),
            ("https://auth.example.com?a=b", "no path, query"),
            ("https://auth.example.com#", "no path"),
            ("https://auth.example.com#a", "no path"),
            ("https://user@auth.example.com", "no path, query, user"),
            ("https://user:password@auth.example.com", "no path, query, user"),
            ("https://@auth.example.com", "no path, query, user"),
            ("http://auth.example.com", "http is allowed only on loopback"),
            ("http://127.0.0.1.evil.example", "http is allowed only on loopback"),
            ("http://10.0.0.1", "http is allowed only on loopback"),
            ("http://0.0.0.0", "http is allowed only on loopback"),
            ("https://Auth.example.com", "lower case"),
            ("HTTPS://auth.example.com", "lower case"),
            ("auth.example.com", "must be https://host"),
            ("//auth.example.com", "must be https://host"),
            ("ftp://auth.example.com", "must be https://host"),
            ("https://", "must be https://host"),
            ("https:", "must be https://host"),
            ("https://:8080", "must be https://host"),
            ("https://auth.example.com:", "must be https://host"),
            ("https://auth.example.com:99999", "must be https://host"),
            ("https://auth.example.com:port", "must be https://host"),
            ("https://[::1", "must be https://host"),
            ("https://auth example.com", "must be https://host"),
            ("https://auth\n.example.com", "must be https://host"),
            (" https://auth.example.com", "must be https://host"),
            ("https://auth.example.com\r\n", "must be https://host"),
            ('https://auth"example.com', "must be https://host"),
            ("https://auth\\example.com", "must be https://host"),
            ("https://äuth.example.com", "must be https://host"),
            ("https://*.example.com", "must be https://host"),
        ],
    )
    def test_wrong(self, url: str, because: str) -> None:
        with pytest.raises(BadSetting, match=f"^base_url: .*{because}"):
            load({"base_url": url}, {})

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "auth.example.com", "127.0.0.2", ""])
    def test_beyond_loopback_it_is_needed(self, host: str) -> None:
        with pytest.raises(BadSetting, match="base_url: required when host is not a loopback address"):
            load({"host": host}, {})
        assert load(PUBLIC | {"host": host}, {}).host == host

    def test_for_ones_own_machine_too(self) -> None:
        with pytest.raises(BadSetting, match="base_url: required"):
            load({"host": "0.0.0.0", "dev": True}, {})


class TestValues:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("port", [1, 65_535, "81"]),
            ("workers", [1, 64]),
            ("deliverers", [1, 64]),
            ("protocol", ["full", "six"]),
            ("only", ["", "web", "deliver"]),
            (
                "database",
                ["", "postgresql://db/x", "postgres://db/x", "postgresql://u:p@a:5432,b:5433/x?sslmode=require"],
            ),
            ("database_listen", ["", "postgresql://db/x"]),
        ],
    )
    def test_right(self, name: str, values: list[Any]) -> None:
        for value in values:
            assert str(getattr(load({name: value}, {}), name)) == str(value)

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("port", [0, 65_536, -1, "http", "", 80.5]),
            ("ops_port", [0, 65_536, "x"]),
            ("workers", [0, 65, "many"]),
            ("deliverers", [0, 65, "many"]),
            ("protocol", ["five", "", "FULL", 6]),
            ("only", ["both", "Web"]),
            ("dev", ["maybe", "", 2]),
            ("database", ["mysql://db/x", "sqlite:///x", "db", "postgresql:db"]),
            ("database_listen", ["mysql://db/x", "db"]),
            ("data", [["x"]]),
        ],
    )
    def test_wrong_is_said_by_name(self, name: str, values: list[Any]) -> None:
        for value in values:
            with pytest.raises(BadSetting, match=name):
                load({name: value}, {})

    @pytest.mark.parametrize(
        ("variable", "text", "message"),
        [
            ("GATEPOST_PORT", "abc", "GATEPOST_PORT: must be a whole number, not 'abc'"),
            ("GATEPOST_PORT", "0", "GATEPOST_PORT: must be from 1 to 65535"),
            ("GATEPOST_DEV", "maybe", "GATEPOST_DEV: must be true or false, not 'maybe'"),
            ("GATEPOST_PROTOCOL", "five", "GATEPOST_PROTOCOL: must be full or six, not 'five'"),
        ],
    )
    def test_a_wrong_variable_is_named(self, variable: str, text: str, message: str) -> None:
        with pytest.raises(BadSetting) as raised:
            load({}, {variable: text})
        assert str(raised.value) == message

    def test_a_wrong_member_of_the_file_is_named_with_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match=r"gatepost\.toml: port: must be a whole number, not 'x'$"):
            loaded(tmp_path, 'port = "x"')
        with pytest.raises(BadSetting, match=r"master_key: must be a text$"):
            loaded(tmp_path, "master_key = 12345")

    def test_unknown_variables(self) -> None:
        known = ("GATEPOST_PORT", "GATEPOST_ACCOUNT", "GATEPOST_CLIENT_SECRET", "GATEPOST_CONFIG", "GATEPOST_TEST_X")
        environment = dict.fromkeys((*known, "PATH", "GATEPOST_DATABSE", "GATEPOST_XYZZY"), "")
        assert unknown_variables(environment) == {"GATEPOST_DATABSE": "GATEPOST_DATABASE", "GATEPOST_XYZZY": ""}

    def test_the_operations_plane_needs_a_port_of_its_own(self) -> None:
        with pytest.raises(BadSetting, match="ops_port"):
            load({"port": 9090}, {})
        assert load(PUBLIC | {"port": 9090, "host": "0.0.0.0"}, {}).ops_port == 9090


class TestAllowedNetworks:
    """Networks are allowed to accounts by name, not to all."""

    def test_in_the_file(self, tmp_path: Path) -> None:
        found = loaded(tmp_path, 'allow_networks = { "acme" = ["10.0.0.0/8"], other = [] }')
        assert found.allow_networks == {"acme": ["10.0.0.0/8"], "other": []}

    def test_the_old_form_refuses_to_start_and_names_the_new(self, tmp_path: Path) -> None:
        new = r'allow_networks = \{ "acme" = \["10.20.0.0/16"\] \}'
        for text in ('allow_networks = ["10.0.0.0/8"]', "allow_networks = []"):
            with pytest.raises(BadSetting, match=new):
                loaded(tmp_path, text)
        for text in ("10.0.0.0/8", "10.0.0.0/8,10.1.0.0/16", "acme=10.0.0.0/8 10.1.0.0/16"):
            with pytest.raises(BadSetting, match=new):
                load({}, {"GATEPOST_ALLOW_NETWORKS": text})

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("acme=10.0.0.1/8", "allow_networks for acme: .*host bits"),
            ("acme=", "allow_networks for acme"),
            ("Acme=10.0.0.0/8", "not a valid account name"),
            ("=10.0.0.0/8", "not a valid account name"),
            ("acme=10.0.0.0/8 acme=10.1.0.0/16", "repeated"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str, words: str) -> None:
        with pytest.raises(BadSetting, match=words):
            load({}, {"GATEPOST_ALLOW_NETWORKS": text})

    def test_none(self) -> None:
        assert load({}, {"GATEPOST_ALLOW_NETWORKS": ""}).allow_networks == {}


class TestProxy:
    @pytest.mark.parametrize(
        "url",
        [
            "http://egress.example", "http://egress.example/", "https://egress.example:443", "socks5h://10.0.0.1:1080",
            "http://egress_proxy:3128", "http://[fd00::1]:3128", "http://egress.example:65535",
            "http://user:p%40ss@egress.example:3128", "http://user@egress.example:3128",
        ],
    )  # fmt: skip
    def test_one_that_can_be_used(self, url: str) -> None:
        assert load({"egress_proxy": url}, {}).egress_proxy == url

    @pytest.mark.parametrize(
        "url",
        [
            "egress.example:3128", "ftp://egress.example", "socks5://egress.example:1080", "HTTP://egress.example",
            "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://egress.example:", "http://x:abc", "http://:3128",
            "http://[::1", "http://[::1]x:1", "http://%zz:1", "http://a\\b:1", "http://exämple.com:1", "http://a b:1",
            "http://a,b:1", "socks5h://:99", "http://u@", "http://", "http://egress.example:3128/path",
            "http://egress.example:3128?", "http://egress.example:3128/?a", "http://egress.example:3128/#a",
            "http://user:p@ss@egress.example:3128", "http://user:p%0a@egress.example:3128",
        ],
    )  # fmt: skip
    def test_one_that_cannot(self, url: str) -> None:
        """Otherwise each delivery would fail, and its receiver would look like the cause."""
        form = r"http://host:port, https://host:port or socks5h://host:port, with a port from 1 to 65535"
        with pytest.raises(BadSetting, match=rf"^GATEPOST_EGRESS_PROXY: must be {form}"):
            load({}, {"GATEPOST_EGRESS_PROXY": url})

    @pytest.mark.parametrize("rest", ["egress.example:99999", "egress.example/path", "", "[::1", ":1"])
    def test_the_error_does_not_contain_its_credentials(self, rest: str) -> None:
        with pytest.raises(BadSetting) as raised:
            load({"egress_proxy": f"http://ursula:tr0ub4dor@{rest}"}, {})
        assert not re.search("ursula|tr0ub4dor", str(raised.value))


class TestAuthorities:
    def test_a_file_without_certificates_or_with_a_damaged_one_is_refused_at_start(self, tmp_path: Path) -> None:
        """Otherwise each delivery would fail, and its receiver would look like the cause."""
        good = Path(certifi.where()).read_bytes()
        for content in (b"", b"no certificate", b"\0\xff", good[:-100], good + b"-----BEGIN CERTIFICATE-----\nMIIB"):
            (tmp_path / "authorities.pem").write_bytes(content)
            words = "contains no certificates in PEM format, or a damaged one"
            with pytest.raises(BadSetting, match=rf"^egress_ca: .* {words}$"):
                load({"egress_ca": str(tmp_path / "authorities.pem")}, {})

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match=r"^egress_ca: the file .* does not exist$"):
            load({"egress_ca": str(tmp_path / "missing.pem")}, {})
        with pytest.raises(BadSetting, match=r"^egress_ca: "):
            load({"egress_ca": str(tmp_path)}, {})
