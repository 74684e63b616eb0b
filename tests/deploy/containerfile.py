"""Parses the Containerfile: its stages with their instructions, and the configuration of the image."""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import ROOT

CONTAINERFILE = ROOT / "Containerfile"
IGNORED = ROOT / ".containerignore"


class Step(NamedTuple):
    """One instruction, such as RUN, and what follows it."""

    instruction: str
    text: str

    @property
    def exec_form(self) -> list[str] | None:
        """The words of a command in exec form, or None if a shell would run it."""
        words = json.loads(self.text) if self.text.startswith("[") else None
        assert words is None or all(isinstance(word, str) for word in words)
        return words


@dataclass
class Stage:
    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def texts(self, instruction: str) -> list[str]:
        return [step.text for step in self.steps if step.instruction == instruction]

    def only(self, instruction: str) -> Step:
        [step] = [step for step in self.steps if step.instruction == instruction]
        return step

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for text in self.texts("ENV") for word in shlex.split(text))

    @property
    def labels(self) -> dict[str, str]:
        values = dict(text.split("=", 1) for text in self.texts("ARG"))
        found = dict(word.split("=", 1) for text in self.texts("LABEL") for word in shlex.split(text))
        return {name: re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text) for name, text in found.items()}

    @property
    def health_command(self) -> list[str]:
        command = json.loads(self.only("HEALTHCHECK").text.partition(" CMD ")[2])
        assert isinstance(command, list)
        return command


def parse(path: Path = CONTAINERFILE) -> list[Stage]:
    """Return the stages, the last of which is the image."""
    text = re.sub(r"^#.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        elif stages and instruction:
            stages[-1].steps.append(Step(instruction, rest.strip()))
    return stages


def context_files() -> list[Path]:
    """Return the files that an engine would copy, relative to the root of the repository."""
    lines = [line for line in IGNORED.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "everything is ignored that is not named"
    included = [ROOT / line.removeprefix("!") for line in lines if line.startswith("!")]
    excluded = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    files = [file for path in included for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    relative = [file.relative_to(ROOT) for file in files]
    return [file for file in relative if not any(Path(part).match(one) for part in file.parts for one in excluded)]
