"""The peer node oidc-provider: in memory, ES256 JWT access tokens, one node process."""

import json
import shutil
import subprocess
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.load import Target
from bench.peers.process import CACHE, free_port, serving, token

VERSION = "9.13.3"
FOLDER = CACHE / "oidc-provider"
SCRIPT = Path(__file__).with_suffix(".mjs")
CLIENT, SECRET = "bench", "bench-secret-of-some-length"


@contextmanager
def running() -> Iterator[Target]:
    install()
    # An ES module finds its packages beside itself, so the script runs from where they are.
    script = shutil.copy(SCRIPT, FOLDER)
    port = free_port()
    target = Target(
        f"http://127.0.0.1:{port}/token",
        headers={
            "Authorization": "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
        body=b"grant_type=client_credentials&scope=api%3Aread&resource=https%3A%2F%2Fapi.example",
    )
    command = ["node", "--no-warnings", script, str(port), CLIENT, SECRET]
    with serving(command, port, FOLDER, {"NODE_ENV": "production"}):
        check(token(target))
        yield target


def install() -> None:
    """Once per version, into the cache. `--prefix` keeps npm from looking for a project above it."""
    package = FOLDER / "node_modules" / "oidc-provider" / "package.json"
    if package.exists() and json.loads(package.read_text())["version"] == VERSION:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error", f"--prefix={FOLDER}"]
    command = ["npm", "install", *options, f"oidc-provider@{VERSION}"]
    subprocess.run(command, cwd=FOLDER, stdout=subprocess.DEVNULL, timeout=300, check=True)


def check(issued: str) -> None:
    """A peer that does not sign the same kind of token is not a comparison."""
    header, claims = (json.loads(urlsafe_b64decode(part + "==")) for part in issued.split(".")[:2])
    found = header["alg"], claims["aud"], claims["scope"]
    if found != ("ES256", "https://api.example", "api:read"):
        raise RuntimeError(f"oidc-provider issued another kind of token: {found}")
