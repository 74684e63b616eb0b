"""Runs the instructions of the Containerfile, and the image, in namespaces of this machine, without a container engine.

The Python of the tests stands in for the base image: it is mounted at /usr/local, and the system's libraries and
programs are mounted read-only. What the instructions install is in a directory of its own. Needs root.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.containerfile import Stage, context_files, parse
from tests.docs.pages import ROOT
from tests.waiting import LIMIT

SYSTEM = ("bin", "etc", "lib", "lib64", "sbin", "usr")
_LOOPBACK_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 1))"  # SIOCSIFFLAGS, IFF_UP
)


def missing() -> str:
    """Return why namespaces cannot be used here, or an empty string."""
    if os.getuid() != 0:
        return "needs root, to make namespaces"
    probe = ["unshare", "--mount", "--pid", "--net", "--fork", "mount", "--make-rprivate", "/"]
    if shutil.which("unshare") is None or subprocess.run(probe, check=False, capture_output=True).returncode:
        return "needs permission to make namespaces"
    return ""


@dataclass(frozen=True)
class Root:
    """A directory that is the root of the file system for the commands that run in it."""

    path: Path
    environment: Mapping[str, str]
    directory: str = "/"

    def with_environment(self, values: Mapping[str, str]) -> "Root":
        return Root(self.path, dict(self.environment) | dict(values), self.directory)

    def command(self, words: list[str], *, build: bool, volume: str = "") -> list[str]:
        """Return the command that runs `words` in namespaces.

        A build may write to the root, and has the network and the settings of pip of this machine. Otherwise,
        everything but the volume is read-only, /tmp too, and the command runs as the user of the image, on a network
        of its own.
        """
        script = "\n".join(["set -eu", *self._mounts(build=build, volume=volume), 'exec "$@"'])
        spaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if build else ["--net"])]
        inner = ["chroot", str(self.path), *([] if build else _as_user()), *self.in_environment(words, build=build)]
        return ["unshare", *spaces, "sh", "-c", script, "sh", *inner]

    def _mounts(self, *, build: bool, volume: str) -> Iterator[str]:
        def bind(source: str, target: str, *, read_only: bool = True) -> Iterator[str]:
            place = shlex.quote(str(self.path) + target)
            yield f"mount --bind {shlex.quote(source)} {place}"
            if read_only:
                yield f"mount -o remount,bind,ro {place}"

        home = os.path.expanduser("~")  # noqa: PTH111 (pip uses the same function)
        interpreter = sys.base_prefix
        places = ["proc", "dev", "tmp", *SYSTEM, home.strip("/"), interpreter.strip("/")]
        for place in places:
            (self.path / place).mkdir(parents=True, exist_ok=True)
        yield "mount --make-rprivate /"
        yield f"mount --bind {self.path} {self.path}"
        for name in SYSTEM:
            yield from bind(f"/{name}", f"/{name}")
        if interpreter != "/usr":
            yield from bind(interpreter, "/usr/local")
            yield from bind(interpreter, interpreter)
        yield f"mount -t proc proc {self.path}/proc"
        yield f"mount -t tmpfs tmpfs {self.path}/dev"
        for device in ("null", "random", "urandom", "zero"):
            yield f"touch {self.path}/dev/{device}"
            yield from bind(f"/dev/{device}", f"/dev/{device}", read_only=False)
        if build:
            yield from bind(home, home)  # the settings of pip
            cache = f"{home}/.cache/pip"
            if Path(cache).is_dir():
                yield from bind(cache, cache, read_only=False)
            yield f"mount -t tmpfs tmpfs {self.path}/tmp"
        else:
            yield f"{shlex.quote(sys.executable)} -c {shlex.quote(_LOOPBACK_UP)}"
            yield from bind(str(self.path) + volume, volume, read_only=False)
            yield f"mount -o remount,bind,ro {self.path}"

    def in_environment(self, words: list[str], *, build: bool) -> list[str]:
        inherited = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_", "HOME"))}
        path = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        values = path | (inherited if build else {}) | dict(self.environment)
        return ["env", "-i", f"--chdir={self.directory}", *[f"{name}={text}" for name, text in values.items()], *words]


def _as_user() -> list[str]:
    user, group = parse()[-1].only("USER").text.split(":")
    return [
        "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
        "--bounding-set=-all", "--pdeathsig=KILL",
    ]  # fmt: skip


# --- the build


def build(directory: Path) -> Root:
    """Run the instructions of every stage but the base, which stands for what the machine has. Returns the image."""
    roots: dict[str, Root] = {}
    for number, stage in enumerate(parse()[1:]):
        path = directory / (stage.name or "image")
        path.mkdir(mode=0o755)
        roots[stage.name or str(number)] = root = _build_stage(stage, Root(path, {}), roots)
    return root


def _build_stage(stage: Stage, root: Root, roots: Mapping[str, Root]) -> Root:
    for step in stage.steps:
        match step.instruction:
            case "RUN":
                command = root.command(step.exec_form or ["sh", "-c", step.text], build=True)
                done = subprocess.run(command, check=False, capture_output=True, text=True)
                assert done.returncode == 0, f"{step.text}\n{done.stdout}{done.stderr}"
            case "COPY":
                _copy(step.text, root, roots)
            case "WORKDIR":
                (root.path / step.text.strip("/")).mkdir(parents=True, exist_ok=True)
                root = Root(root.path, root.environment, step.text)
            case "ENV" | "ARG":
                values = dict(word.split("=", 1) for word in shlex.split(step.text))
                root = root.with_environment(values)
            case "USER":
                assert not [each for each in stage.steps[stage.steps.index(step) :] if each.instruction == "RUN"]
    return root


def _copy(text: str, root: Root, roots: Mapping[str, Root]) -> None:
    words = text.split()
    if words[0].startswith("--from="):
        source = roots[words[0].removeprefix("--from=")].path
        shutil.copytree(source / words[1].strip("/"), root.path / words[2].strip("/"), symlinks=True)
        return
    target = root.path / root.directory.strip("/")
    wanted = [Path(word) for word in words[:-1]]
    for file in context_files():
        if any(one in (file, Path()) for one in wanted):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target / file)


# --- a container


@dataclass(frozen=True)
class Container:
    """A running container. Process 1 in it is the command."""

    root: Root
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """The id of process 1, as this machine sees it."""
        process = self.process.pid
        [child] = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return int(child)

    def execute(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `podman exec` does."""
        root = self.root.with_environment(environment)
        entered = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--root", *_as_user()]
        command = [*entered, *root.in_environment(list(words), build=False)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)


def run(image: Root, words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new container, to its end."""
    with start(image, words, **environment) as container:
        output, errors = container.process.communicate(timeout=LIMIT)
    return subprocess.CompletedProcess(words, container.process.returncode, output, errors)


@contextmanager
def start(image: Root, words: list[str], **environment: str) -> Iterator[Container]:
    """Start a container with a read-only root."""
    root = image.with_environment(environment)
    command = root.command(words, build=False, volume=parse()[-1].only("VOLUME").text)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield Container(root, process)
    finally:
        process.kill()
        process.communicate()
