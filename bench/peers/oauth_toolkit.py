"""The peer django-oauth-toolkit: gunicorn with two sync workers, SQLite, and its defaults (a hashed client secret)."""

import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load import Target
from bench.peers.process import CACHE, free_port, serving, token

PINS = ("django==5.2.19", "django-oauth-toolkit==3.4.1", "gunicorn==27.0.0")
FOLDER = CACHE / "oauth-toolkit"
PYTHON = FOLDER / "bin" / "python"
SETTINGS = Path(__file__).with_name("oauth_toolkit_site.py")
CLIENT, SECRET = "bench", "bench-secret-of-some-length"


@contextmanager
def running() -> Iterator[Target]:
    install()
    port = free_port()
    target = Target(
        f"http://127.0.0.1:{port}/token/",
        headers={
            "Authorization": "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
        body=b"grant_type=client_credentials&scope=api%3Aread",
    )
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "DJANGO_SETTINGS_MODULE": SETTINGS.stem,
            "PYTHONPATH": str(SETTINGS.parent),
            "BENCH_DATABASE": str(Path(folder, "db.sqlite3")),
        }
        create(env)
        command = [str(PYTHON), "-m", "gunicorn", "--workers=2", f"--bind=127.0.0.1:{port}", "--worker-tmp-dir", folder]
        with serving([*command, "django.core.wsgi:get_wsgi_application()"], port, Path(folder), env):
            token(target)
            yield target


def install() -> None:
    """Once per set of versions, into a virtual environment in the cache, from wheels."""
    stamp = FOLDER / "installed"
    if stamp.exists() and stamp.read_text() == "\n".join(PINS):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], timeout=120, check=True)
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([PYTHON, "-m", "pip", "install", *options, *PINS], timeout=300, check=True)
    stamp.write_text("\n".join(PINS))


def create(env: dict[str, str]) -> None:
    """The tables, and one confidential client."""
    names = ["--client-id", CLIENT, "--client-secret", SECRET, "--name", "bench"]
    for command in (["migrate"], ["createapplication", "confidential", "client-credentials", *names]):
        subprocess.run(
            [PYTHON, "-m", "django", *command],
            env=os.environ | env,
            stdout=subprocess.DEVNULL,
            timeout=120,
            check=True,
        )
