"""Which values of Host the operations plane takes for its own name."""

import pytest

from gatepost.web.ops.plane import is_own_name

OWN = [
    ("127.0.0.1:9090", "127.0.0.1", 9090), ("localhost:9090", "127.0.0.1", 9090), ("LOCALHOST:9090", "::1", 9090),
    ("[::1]:9090", "127.0.0.1", 9090), ("[::1]:9090", "::1", 9090), ("[0:0:0:0:0:0:0:1]:9090", "::1", 9090),
    ("127.0.0.1", "127.0.0.1", 80), ("[::1]", "::1", 80), ("127.0.0.1:80", "127.0.0.1", 80),
    ("localhost:9090", "0.0.0.0", 9090), ("localhost:9090", "::", 9090), ("0.0.0.0:9090", "0.0.0.0", 9090),
    ("10.1.2.3:9090", "0.0.0.0", 9090), ("[fd00::1]:9090", "::", 9090), ("[fd00:0::1]:9090", "fd00::1", 9090),
    ("ops.internal:9090", "ops.internal", 9090),
]  # fmt: skip
OTHERS = [
    ("evil.example:9090", "127.0.0.1", 9090), ("evil.example:9090", "0.0.0.0", 9090), ("127.0.0.1", "127.0.0.1", 9090),
    ("127.0.0.1:9091", "127.0.0.1", 9090), ("127.0.0.1:", "127.0.0.1", 9090), ("10.1.2.3:9090", "127.0.0.1", 9090),
    ("[fd00::2]:9090", "fd00::1", 9090), ("::1:9090", "::1", 9090), ("user@127.0.0.1:9090", "127.0.0.1", 9090),
    ("127.0.0.1.evil.example:9090", "0.0.0.0", 9090), ("127.0.0.1:9090.evil.example", "127.0.0.1", 9090),
    ("localhost.:9090", "127.0.0.1", 9090), ("[::1:9090", "::1", 9090), (":9090", "0.0.0.0", 9090), ("", "", 80),
]  # fmt: skip


@pytest.mark.parametrize(("header", "host", "port"), OWN)
def test_own(header: str, host: str, port: int) -> None:
    assert is_own_name(header, host, port)


@pytest.mark.parametrize(("header", "host", "port"), OTHERS)
def test_another(header: str, host: str, port: int) -> None:
    assert not is_own_name(header, host, port)
