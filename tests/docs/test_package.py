"""The wheel contains every file of the package, and its metadata agree with the repository."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

from gatepost import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy: setuptools would put files of an earlier build into the wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "gatepost", source / "gatepost", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", source, source], check=True)
    [built] = source.glob("*.whl")
    return built


def test_the_wheel_contains_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = [path for path in (ROOT / "gatepost").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert packed == {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_has_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Version"] == __version__ == PROJECT["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert str(metadata.get_payload()).startswith("# Gatepost\n")


def test_supported_versions_agree() -> None:
    """The classifiers, the lower bound and the versions that CI tests are the same."""
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert CI["jobs"]["test"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_ci_and_hooks_call_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    runs = [step["run"] for job in CI["jobs"].values() for step in job["steps"] if "run" in step]
    called = {match[1] for line in [*entries, *runs] if (match := re.match(r"make ([a-z-]+)", line))}
    assert called <= targets
    assert {"lint", "types", "test", "wheel", "docs"} <= called
