"""The console: the built pages from console/, served under /console/.

They call the six operations, and POST /events if it is on.
"""

import html
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from gatepost.web.responses import Reply

ROOT = "/console/"
OPERATOR = "/operator/"
_BASE_URL = '<meta name="gatepost-base-url" content="">'
_INTAKE = '<meta name="gatepost-intake" content="">'
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


def load(base_url: str, *, takes_events: bool = False) -> dict[str, Reply]:
    """Every path with its response. Other paths are not served. `takes_events`: whether POST /events is on."""
    folder = files("gatepost").joinpath("console")
    page = folder.joinpath("index.html").read_text("utf-8")
    for placeholder, value in ((_BASE_URL, base_url), (_INTAKE, "http" if takes_events else "off")):
        if page.count(placeholder) != 1:
            raise RuntimeError(f"the console's index.html has no {placeholder}; build it with `make console`")
        page = page.replace(placeholder, placeholder.replace('""', f'"{html.escape(value)}"'))
    index = Reply(200, page.encode(), _security_headers(base_url, takes_events=takes_events), _TYPES[".html"])
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


def _security_headers(base_url: str, *, takes_events: bool) -> tuple[tuple[str, str], ...]:
    """The page loads only its own files, and cannot be framed or opened by other pages.

    It calls the base URL and, for POST /events, its own origin.
    """
    callable_origins = f"{base_url} 'self'" if takes_events else base_url
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        f"connect-src {callable_origins}",
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
