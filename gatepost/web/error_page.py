"""The page that a browser gets for an error at /oauth/authorize that cannot be sent back to the client.

It is static HTML without scripts, forms, links or resources. Other callers get the same error as JSON.
"""

import hashlib
from base64 import b64encode
from html import escape
from typing import Final

import msgspec

from gatepost.web.responses import Reply

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 12vh auto 2rem; padding: 0 1.25rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .75rem; }
dl { margin: 1.75rem 0 0; padding: 1rem 1.25rem; border: 1px solid #8886; border-radius: .5rem; }
dt { font-size: .875rem; opacity: .75; }
dd { margin: 0 0 .75rem; overflow-wrap: anywhere; }
dd:last-child { margin-bottom: 0; }
code { font: .9375rem ui-monospace, monospace; }
"""
_STYLE_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TRY_AGAIN: Final = (
    "Go back to the application that you came from and start again. If that does not help, send the people who run "
    "the application the details below."
)
_LATER: Final = "The service cannot answer at the moment. Wait a little, then reload this page."


def for_browser(reply: Reply, accept: str, request_id: str) -> Reply:
    """Return the error as a page if the caller prefers HTML to JSON, otherwise unchanged."""
    if not prefers_html(accept):
        return reply
    error = msgspec.json.decode(reply.body)
    details = {
        "Error": f"<code>{escape(error['error'])}</code>",
        "Reason": escape(error["error_description"]),
        "Request ID": f"<code>{escape(request_id)}</code>",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in details.items())
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f"<title>Sign-in cannot continue</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Sign-in cannot continue</h1><p>{_LATER if reply.status == 503 else _TRY_AGAIN}</p>"
        f"<dl>{listed}</dl></main></body></html>"
    )
    headers = [header for header in reply.headers if header[0] != "content-security-policy"]
    headers += [("content-security-policy", _POLICY), ("vary", "Accept")]
    return reply._replace(body=page.encode(), headers=tuple(headers), media_type="text/html; charset=utf-8")


def prefers_html(accept: str) -> bool:
    """Whether an Accept header ranks text/html above application/json. RFC 9110, section 12.5.1."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = (item.strip().lower() for item in part.split(";"))
        ranges[media_range] = _weight(parameters)
    return _quality(ranges, "text/html") > _quality(ranges, "application/json")


def _weight(parameters: list[str]) -> float:
    text = next((item.removeprefix("q=") for item in parameters if item.startswith("q=")), "1")
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def _quality(ranges: dict[str, float], media_type: str) -> float:
    """The quality of the most specific matching range."""
    matching = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    return next((ranges[media_range] for media_range in matching if media_range in ranges), 0.0)
