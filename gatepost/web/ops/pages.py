"""The console: built pages from console/, as they are served under /console/. They only read, and only the base URL."""

import html
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from gatepost.web.responses import Reply

ROOT = "/console/"
_BASE_URL = '<meta name="gatepost-base-url" content="">'
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = ("cache-control", "public, max-age=31536000, immutable")  # a file's name has the hash of what is in it


def address(host: str, port: int) -> str:
    """Where a browser on this machine finds it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (only compared with)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{ROOT}"


def load(base_url: str) -> dict[str, Reply]:
    """Every path there is, with its answer. What is not here is not served, whatever the path looks like."""
    folder = files("gatepost").joinpath("console")
    page = folder.joinpath("index.html").read_text("utf-8")
    if page.count(_BASE_URL) != 1:
        raise RuntimeError("the console's index.html has no place for the base URL: build it with `make console`")
    told = _BASE_URL.replace('""', f'"{html.escape(base_url)}"')
    index = Reply(200, page.replace(_BASE_URL, told).encode(), _guarded(base_url), _TYPES[".html"])
    return {ROOT: index} | dict(_assets(folder.joinpath("assets")))


def _assets(folder: Traversable) -> Iterator[tuple[str, Reply]]:
    for file in folder.iterdir():
        kind = _TYPES["." + file.name.rpartition(".")[2]]
        yield f"{ROOT}assets/{file.name}", Reply(200, file.read_bytes(), (_FOR_EVER,), kind)


def _guarded(base_url: str) -> tuple[tuple[str, str], ...]:
    """Nothing runs, loads or is asked but what is ours, and no other page can frame or open this one."""
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        f"connect-src {base_url}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return (
        ("content-security-policy", "; ".join(policy)),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    )
