"""The example programs that verify webhooks accept what Gatepost signs, and nothing else."""

import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gatepost.core import clock, ids, webhook_signature
from gatepost.webhooks import message
from gatepost.webhooks.message import EventMessage
from tests.clients.toolchains import GO, require
from tests.docs.pages import HOW_TO, blocks

PAGE = HOW_TO / "verify-webhooks.md"
EVENT = {"invoice": 17, "words": "Grüße, 世界", "amount": 12.50}
SHOWN_SECRET = "whsec_…"


class Request(NamedTuple):
    headers: dict[str, str]
    body: bytes
    good: bool


def requests(secret: webhook_signature.NewSecret) -> list[Request]:
    """Requests as the worker sends them, with one secret and with two, and requests that must be refused."""
    now = clock.seconds(clock.now())
    good = signed(now, secret, webhook_signature.new_secret("v1"))
    other = {"webhook-signature": signed(now, webhook_signature.new_secret("v1"))["webhook-signature"]}
    return [
        Request(signed(now, secret), body(), True),
        Request(good, body(), True),
        Request(good | {"webhook-signature": "v9,abc " + good["webhook-signature"]}, body(), True),
        Request(good | other, body(), False),
        Request(good, body().replace(b"17", b"18"), False),
        Request(good | {"webhook-id": good["webhook-id"] + "0"}, body(), False),
        Request(good | {"webhook-timestamp": str(now - 1)}, body(), False),
        Request(signed(now - 3600, secret), body(), False),
        Request(signed(now + 3600, secret), body(), False),
        Request({}, body(), False),
    ]


EVENT_ID = ids.new("evt")


def body() -> bytes:
    return message.body(EventMessage("acc_1", EVENT_ID, "invoice.paid", 0, json.dumps(EVENT)))


def signed(at: int, *secrets: webhook_signature.NewSecret) -> dict[str, str]:
    signature = webhook_signature.signature(
        [webhook_signature.signer("v1", each.raw) for each in secrets], EVENT_ID, at, body()
    )
    lines = message.headers(message.fixed_headers({}, "standard"), EVENT_ID, at, signature)
    return dict(line.split(": ", 1) for line in lines)


@pytest.fixture(scope="module")
def secret() -> webhook_signature.NewSecret:
    return webhook_signature.new_secret("v1")


@pytest.mark.parametrize("place", [0, 1], ids=["gatepost", "standardwebhooks"])
def test_python(secret: webhook_signature.NewSecret, place: int) -> None:
    known: dict[str, Any] = {}
    exec(compile(blocks(PAGE, "python")[place].replace(SHOWN_SECRET, secret.shown), PAGE.name, "exec"), known)
    for each in requests(secret):
        for headers in (each.headers, {name.title(): value for name, value in each.headers.items()}):
            assert known["receive"](headers, each.body) == (204 if each.good else 400), each


def test_node(secret: webhook_signature.NewSecret, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("Node is not on this machine; the service does not need it")
    [snippet] = blocks(PAGE, "js")
    tell = """
    for (const [headers, body] of JSON.parse(process.argv[2])) {
      console.log(verify(headers, Buffer.from(body, "base64"))?.data.words ?? "refused");
    }
    """
    (tmp_path / "verify.mjs").write_text(snippet.replace(SHOWN_SECRET, secret.shown) + tell)
    result = run(["node", "verify.mjs", as_json(secret)], tmp_path)
    assert result == [str(EVENT["words"]) if each.good else "refused" for each in requests(secret)]


# The only type of net/http that the page uses: compiling that package takes most of a minute of CPU time.
GO_HEADER = """package http

import "strings"

type Header map[string]string

func (header Header) Get(name string) string { return header[strings.ToLower(name)] }

func (header Header) Set(name, value string) { header[strings.ToLower(name)] = value }
"""


def test_go(secret: webhook_signature.NewSecret, tmp_path: Path) -> None:
    require("go")
    [snippet] = blocks(PAGE, "go")
    (tmp_path / "page.go").write_text(snippet)
    assert not run(["gofmt", "-l", "page.go"], tmp_path), "the page's code is formatted"
    (tmp_path / "page.go").unlink()
    used = set(re.findall(r"\bhttp\.(\w+)|\bheaders\.(\w+)", snippet))
    assert used == {("Header", ""), ("", "Get")}, "GO_HEADER has everything that the page uses of net/http"
    (tmp_path / "go.mod").write_text("module example.com/receiver\n\ngo 1.18\n")
    for package, code in (("http", GO_HEADER), ("webhook", snippet.replace("net/http", "example.com/receiver/http"))):
        (tmp_path / package).mkdir()
        (tmp_path / package / f"{package}.go").write_text(code)
    (tmp_path / "main.go").write_text(
        """package main

import (
	"encoding/json"
	"fmt"
	"os"

	"example.com/receiver/http"
	"example.com/receiver/webhook"
)

func main() {
	var requests []struct {
		Headers map[string]string
		Body    []byte
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &requests); err != nil {
		panic(err)
	}
	for _, each := range requests {
		headers := http.Header{}
		for name, value := range each.Headers {
			headers.Set(name, value)
		}
		fmt.Println(webhook.Verify(os.Args[1], headers, each.Body) == nil)
	}
}
"""
    )
    sent = json.dumps([{"Headers": headers, "Body": text} for headers, text in json.loads(as_json(secret))])
    result = run(["go", "run", ".", secret.shown, sent], tmp_path, GO)
    assert result == [str(each.good).lower() for each in requests(secret)]


def as_json(secret: webhook_signature.NewSecret) -> str:
    return json.dumps([(each.headers, b64encode(each.body).decode()) for each in requests(secret)])


def run(command: list[str], directory: Path, more: Mapping[str, str] | None = None) -> list[str]:
    done = subprocess.run(
        command, cwd=directory, env=os.environ | dict(more or {}), check=False, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
