"""The distribution `gatepost-client`: small, typed, current, and independent of the service."""

import ast
import importlib.metadata
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gatepost
import gatepost_client

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "clients" / "python"
PACKAGE = SOURCE / "gatepost_client"
FRAMEWORKS = {"starlette", "flask", "django"}
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy: setuptools would put files of an earlier build into the wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(SOURCE / name, source)
    shutil.copytree(PACKAGE, source / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", source, source], check=True)
    [built] = source.glob("*.whl")
    return built


def dependencies(requirements: list[str]) -> set[str]:
    """The distributions that these requirements install on this machine, with their own requirements."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found |= {name} | dependencies(importlib.metadata.requires(name) or [])
    return found


def test_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """In an environment with the wheel and what it requires, everything but the framework modules can be imported."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {f"gatepost_client/{path.name}" for path in PACKAGE.iterdir() if path.is_file()}
    required = tomllib.loads((SOURCE / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    needed = dependencies(required)
    assert needed <= {"cryptography", "cffi", "pycparser"}

    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    for name in needed:  # as pip would, but without an index
        for file in importlib.metadata.files(name) or []:
            if ".." not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)
    script = f"""
import importlib, importlib.metadata, importlib.util
for name in {[name for name in MODULES if name not in FRAMEWORKS]!r}:
    importlib.import_module("gatepost_client." + name)
import gatepost_client
for name in gatepost_client.__all__:
    getattr(gatepost_client, name)
gatepost_client.ProofKey().proof("GET", "https://api.example.com")
assert importlib.util.find_spec("gatepost") is None
print(*sorted(each.name for each in importlib.metadata.distributions()))
"""
    done = subprocess.run([python, "-I", "-W", "error", "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == needed | {"gatepost-client"}


@pytest.mark.parametrize("module", ["__init__", *MODULES])
def test_imports(module: str) -> None:
    """Only the standard library, `cryptography` and the client; a framework only in its module; no POSIX modules."""
    allowed = {*sys.stdlib_module_names, "cryptography", "gatepost_client"} - {"fcntl", "grp", "pwd", "resource"}
    allowed |= {module} & FRAMEWORKS | ({"sqlalchemy"} if module == "outbox" else set())
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").partition(".")[0])
    assert names <= allowed


def test_the_types_are_current() -> None:
    text = runpy.run_path(str(SOURCE / "generate.py"))["render"]()
    assert text == (PACKAGE / "schemas.py").read_text("utf-8"), "run `make clients`"


def test_versions_agree() -> None:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text("utf-8"))["project"]
    service = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == gatepost_client.__version__ == gatepost.__version__
    [requirement] = [Requirement(each) for each in service["dependencies"] if each.startswith("gatepost-client")]
    assert requirement.specifier.contains(project["version"])
    assert project["requires-python"] == service["requires-python"]


def test_files_and_classes_stay_small() -> None:
    for path in PACKAGE.glob("*.py"):
        if path.name != "schemas.py":  # generated
            text = path.read_text("utf-8")
            assert len(text.splitlines()) < 450, path.name
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    assert (node.end_lineno or 0) - node.lineno < 250, node.name


def test_every_public_name_exists() -> None:
    for name in gatepost_client.__all__:
        assert getattr(gatepost_client, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gatepost_client.nothing  # noqa: B018
