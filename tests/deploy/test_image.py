"""The Containerfile: its instructions give an image that serves as its own user, with only its data writable.

No container engine is needed: tests/deploy/container.py says what stands in for it.
"""

import json
import os
import re
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatepost import settings
from tests.deploy import container
from tests.deploy.container import Container, Root
from tests.deploy.containerfile import IGNORED, context_files, parse
from tests.docs.pages import ROOT
from tests.unit.test_deploy import check_command

STAGES = parse()
IMAGE = STAGES[-1]
URL = "http://127.0.0.1:8080"
COMMAND = [*(IMAGE.only("ENTRYPOINT").exec_form or []), *(IMAGE.only("CMD").exec_form or [])]

pytestmark = pytest.mark.xdist_group("image")


# --- what the file says


def test_the_stages() -> None:
    assert [stage.name for stage in STAGES] == ["base", "build", ""]
    assert {stage.base for stage in STAGES[1:]} == {"base"}
    for text in (text for stage in STAGES for text in stage.texts("RUN") if " install " in text):
        assert "--require-hashes" in text or "--no-index" in text, "pinned with its hash, or built here"


def test_the_settings_of_the_image() -> None:
    named = {name: text for name, text in IMAGE.environment.items() if name.startswith(settings.PREFIX)}
    loaded = settings.load({}, named | {"GATEPOST_BASE_URL": URL})
    assert {name.removeprefix(settings.PREFIX).lower() for name in named} <= set(settings.NAMES)
    assert IMAGE.only("EXPOSE").text.split() == [str(loaded.port), str(loaded.ops_port)]
    assert loaded.data == IMAGE.only("VOLUME").text == IMAGE.only("WORKDIR").text == IMAGE.environment["HOME"]
    assert COMMAND[0] == "gatepost"
    check_command(COMMAND[1:])
    assert IMAGE.only("STOPSIGNAL").text == "SIGTERM"


def test_the_user_is_a_number_and_not_root() -> None:
    user, group = (int(part) for part in IMAGE.only("USER").text.split(":"))
    assert user == group >= 10000
    [owned] = [text for text in IMAGE.texts("RUN") if IMAGE.only("VOLUME").text in text]
    assert f"--owner={user}" in owned
    assert f"--group={group}" in owned


def test_the_labels() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in IMAGE.labels.items()}
    wanted = {"version": project["version"], "licenses": project["license"], "description": project["description"]}
    assert labels == wanted | {"title": "Gatepost", "revision": ""}


def test_what_is_built_from() -> None:
    """Only what the wheel needs: no keys, no data and no other file of the directory."""
    assert IGNORED.read_text("utf-8") == (ROOT / ".dockerignore").read_text("utf-8")
    top = {file.parts[0] for file in context_files()}
    assert {"LICENSE", "README.md", "pyproject.toml", "requirements", "gatepost"} <= top
    assert top <= {"LICENSE", "README.md", "pyproject.toml", "requirements", "gatepost", "clients"}
    assert not [file for file in context_files() if file.suffix in (".pyc", ".db", ".key")]


# --- what it does


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Root:
    if problem := container.missing():
        pytest.skip(problem)
    return container.build(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def serving(image: Root) -> Iterator[Container]:
    with container.start(image, COMMAND, GATEPOST_BASE_URL=URL) as running:
        assert running.process.stdout is not None
        lines = iter(running.process.stdout.readline, "")
        assert any(line == f"ready {URL}\n" for line in lines), running.process.communicate()[1]
        yield running


def test_it_has_bytecode_and_nothing_of_the_build(image: Root) -> None:
    [packages] = (image.path / "opt/gatepost/lib").glob("python3.*/site-packages")
    sources = list(packages.glob("gatepost/**/*.py"))
    assert sources
    for file in sources:
        assert list((file.parent / "__pycache__").glob(f"{file.stem}.*.pyc")), file
    assert not (packages / "pip").exists()
    assert not (packages / "setuptools").exists()
    assert not (image.path / "src").exists()


def test_it_serves_read_only_as_its_user(serving: Container) -> None:
    status = Path(f"/proc/{serving.pid}/status").read_text()
    user = IMAGE.only("USER").text.split(":")[0]
    assert re.search(rf"^Uid:\s+{user}\s+{user}\s+{user}\s+{user}$", status, re.MULTILINE)
    assert re.search(r"^Cap(?:Eff|Bnd|Prm):\s+0+$", status, re.MULTILINE)
    write = "import pathlib, sys; pathlib.Path(sys.argv[1], 'x').touch()"
    for place in ("/", "/tmp", "/opt/gatepost", "/usr/local"):
        assert "Read-only file system" in serving.execute("python", "-c", write, place).stderr, place
    assert Path(f"/proc/{serving.pid}/cmdline").read_bytes().split(b"\0")[1].endswith(b"/gatepost"), "no shell"


def test_its_health_command(serving: Container) -> None:
    healthy = serving.execute(*IMAGE.health_command)
    assert (healthy.returncode, healthy.stdout + healthy.stderr) == (0, "")
    assert serving.execute(*IMAGE.health_command, GATEPOST_OPS_PORT="9999").returncode == 1, "nothing listens there"


def test_commands_work_in_it(serving: Container) -> None:
    done = serving.execute("gatepost", "account", "create", "acme", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["account"]["name"] == "acme"


def test_it_stops_at_the_signal(serving: Container, image: Root) -> None:
    """It leaves nothing but its data, and its health command then fails."""
    data = image.path / IMAGE.only("VOLUME").text.strip("/")
    assert list(data.glob("gatepost-metrics-*")), "here, because /tmp is read-only"
    os.kill(serving.pid, getattr(signal, IMAGE.only("STOPSIGNAL").text))
    _, errors = serving.process.communicate()
    assert serving.process.returncode == 0, errors
    assert not list(data.glob("gatepost-metrics-*"))
    assert (data / "gatepost.db").stat().st_uid == int(IMAGE.only("USER").text.split(":")[0])
    assert container.run(image, IMAGE.health_command).returncode == 1
