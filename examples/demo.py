"""`make demo`: a service in a temporary directory, and a token from nothing to the ledger, told step by step."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.json import JSON
from rich.panel import Panel

console = Console(width=110)
SCOPE = {"name": "invoices:read", "description": "Read invoices.", "resource": "https://api.example.com"}
CLIENT = {"client_name": "Billing", "grant_types": ["client_credentials"], "scope": "invoices:read"}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, service(directory) as (url, admin, environment):
        console.print(f"[bold]Gatepost is up[/] at {url}, on SQLite in a temporary directory.\n")
        token = ask(url, admin, scope="gatepost:clients gatepost:scopes")["access_token"]
        step("1. A scope, and the resource it is for", "POST /oauth/scopes", define(url, token, "scopes", SCOPE))
        client = define(url, token, "clients", CLIENT)
        step("2. A client that may have it", "POST /oauth/clients", hide(client))
        machine = (client["client_id"], client["client_secret"])
        told = ask(url, machine, scope="invoices:read invoices:write", prefer="explain")
        step("3. Asked too much: which rule refuses?", "POST /oauth/tokens, Prefer: explain", told)
        issued = ask(url, machine, scope="invoices:read")
        step("4. Asked right: the token's claims", "POST /oauth/tokens", claims(issued["access_token"]))
        command(environment, "5. Who got what: the ledger", "audit", "list", "--account", "default")
        command(environment, "6. Nothing was changed since: the seals", "audit", "verify", "--account", "default")
    console.print(
        "\nNext: [bold]make serve[/] keeps one running; README.md has the same steps by curl; "
        "docs/tutorial/first-token.md explains them."
    )


@contextmanager
def service(directory: str) -> Iterator[tuple[str, tuple[str, str], dict[str, str]]]:
    """The command itself; its first client is printed once."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = {"GATEPOST_PORT": str(one.getsockname()[1]), "GATEPOST_OPS_PORT": str(other.getsockname()[1])}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEPOST_")}
    environment |= ports | {"GATEPOST_DATA": directory, "GATEPOST_DEV": "true"}
    gatepost = [sys.executable, "-m", "gatepost", "serve"]
    process = subprocess.Popen(gatepost, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said: dict[str, str] = {}
        for line in process.stdout or ():
            words = line.split()
            said |= {words[0]: words[1]} if len(words) == 2 else {}
            if "ready" in said:
                break
        yield said["ready"], (said["client_id"], said["client_secret"]), environment
    finally:
        process.terminate()
        process.wait()


def ask(url: str, client: tuple[str, str], *, scope: str, prefer: str = "") -> dict[str, Any]:
    form = urlencode({"grant_type": "client_credentials", "scope": scope}).encode()
    basic = "Basic " + b64encode(":".join(client).encode()).decode()
    return post(f"{url}/oauth/tokens", form, {"Authorization": basic} | ({"Prefer": prefer} if prefer else {}))


def define(url: str, token: str, noun: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return post(f"{url}/oauth/{noun}", json.dumps(body).encode(), headers)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 (our own http address)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (the same)
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code} {error.read().decode()}") from None


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    return dict(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


def hide(client: dict[str, Any]) -> dict[str, Any]:
    return client | {"client_secret": client["client_secret"][:8] + "… (shown once)"}


def step(title: str, how: str, what: dict[str, Any]) -> None:
    console.print(Panel(JSON(json.dumps(what)), title=f"[bold]{title}[/]  [dim]{how}[/]", title_align="left"))


def command(environment: Mapping[str, str], title: str, *arguments: str) -> None:
    """As a person would see it: the command writes to the terminal itself."""
    console.print(f"\n[bold]{title}[/]  [dim]gatepost {' '.join(arguments)}[/]")
    subprocess.run([sys.executable, "-m", "gatepost", *arguments], env=dict(environment), check=True)


if __name__ == "__main__":
    main()
