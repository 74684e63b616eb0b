"""The console: the built pages from console/, served under /console/. They only read, and only from the base URL."""

import html
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from gatepost.web.responses import Reply

ROOT = "/console/"
OPERATOR = "/operator/"
_BASE_URL = '<meta name="gatepost-base-url" content="">'
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMMUTABLE = ("cache-control", "public, max-age=31536000, immutable")  # file names contain a hash of the content


def address(host: str, port: int, path: str = ROOT) -> str:
    """The URL of the console, or of another path, for a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (only compared with)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def load(base_url: str) -> dict[str, Reply]:
    """Every path with its response. Other paths are not served."""
    folder = files("gatepost").joinpath("console")
    page = folder.joinpath("index.html").read_text("utf-8")
    if page.count(_BASE_URL) != 1:
        raise RuntimeError("the console's index.html has no placeholder for the base URL; build it with `make console`")
    meta = _BASE_URL.replace('""', f'"{html.escape(base_url)}"')
    index = Reply(200, page.replace(_BASE_URL, meta).encode(), _security_headers(base_url), _TYPES[".html"])
    return {ROOT: index} | dict(_assets(folder.joinpath("assets")))


def load_operator() -> dict[str, Reply]:
    """The same for the operator's view, whose page has the headers of the console, but calls its own origin."""
    console = load("'self'")
    page = files("gatepost").joinpath("console", "operator.html").read_bytes()
    return {path.replace(ROOT, OPERATOR, 1): reply for path, reply in console.items()} | {
        OPERATOR: console[ROOT]._replace(body=page)
    }


def _assets(folder: Traversable) -> Iterator[tuple[str, Reply]]:
    for file in folder.iterdir():
        kind = _TYPES["." + file.name.rpartition(".")[2]]
        yield f"{ROOT}assets/{file.name}", Reply(200, file.read_bytes(), (_IMMUTABLE,), kind)


def _security_headers(base_url: str) -> tuple[tuple[str, str], ...]:
    """The page loads only its own files, calls only the base URL, and cannot be framed or opened by other pages."""
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
