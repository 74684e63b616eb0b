"""examples/README.md is true: every command is typed, from a fresh start, and the browser that opens is filled in."""

import re
import shlex
import sys
from pathlib import Path

from tests import service
from tests.docs.pages import DEFAULT_URL, blocks, prose
from tests.docs.reader import Reader
from tests.examples import programs
from tests.examples.programs import API_PORT, EXAMPLES, LOGIN_PORT, PASSWORD, STARTED, take_along
from tests.service import free_ports

PAGE = EXAMPLES / "README.md"


def test_every_command_is_true(tmp_path: Path) -> None:
    ports = dict(zip((LOGIN_PORT, API_PORT), map(str, free_ports(2)), strict=True))
    with service.running(tmp_path / "gatepost-data") as running:
        reader = Reader(tmp_path, running)
        take_along(tmp_path / "examples", ports | {DEFAULT_URL: running.url})
        kept = ("gallery.json", "robot.json", "robot-key.json", "robot-jwks.json")
        before = {*tmp_path.iterdir(), *(tmp_path / name for name in kept)}
        api, login = [line for line in "\n".join(blocks(PAGE, "sh")).splitlines() if line.endswith(" &")]
        waits = {api: f"{api}\n{STARTED.format(port=API_PORT)}", login: f"{login}\n{STARTED.format(port=LOGIN_PORT)}"}
        browser = shlex.quote(shlex.join([sys.executable, "-m", programs.__name__, "%s"]))
        printed = reader.run(PAGE, f"export BROWSER={browser} PYTHONPATH={EXAMPLES.parent}", waits | ports)
        assert set(tmp_path.iterdir()) == before, "nothing is left behind"
    check(printed, running, ports[API_PORT])


def check(printed: str, running: service.Service, api: str) -> None:
    assert "error_description" not in printed, "nothing was refused"
    assert f"serving http://127.0.0.1:{api}/things\n" in printed
    assert printed.count("HTTP/1.0 401") == 1
    robots = re.findall(r'^(?:\{\})?\{"for": "(cli_\w+)"', printed, re.MULTILINE)
    assert len(robots) == 3
    assert len(set(robots)) == 2
    assert printed.count("oauth.token.issued") == 1, "two calls, one token"
    people = re.findall(r'^200 \{"for": "acc_\w+\.(\w+)"', printed, re.MULTILINE)
    assert people == ["ada", "ada", "grace"]
    assert printed.count("Sign in at ") == 2, "the second run refreshes"
    assert re.search(r"\.ada .* revoked_by_login$", printed, re.MULTILINE)
    assert printed.endswith("Signed out.\n")


def test_what_it_says_about_the_programs() -> None:
    text = prose(PAGE)
    named = set(re.findall(r"\]\((\w+\.py)\)", text)) | set(re.findall(r"`(\w+\.py)`", text))
    assert named == {each.name for each in EXAMPLES.glob("*.py")} - {"__init__.py"}
    assert f"`{PASSWORD}`" in text


def test_the_programs_need_nothing_of_ours() -> None:
    """The examples import only the standard library and joserfc."""
    for name in ("login_application", "resource_server", "machine_client", "cli_app"):
        imported = re.findall(r"^(?:from|import) (\w+)", (EXAMPLES / f"{name}.py").read_text("utf-8"), re.MULTILINE)
        assert set(imported) - sys.stdlib_module_names == {"joserfc"}, name
