"""Responses: JSON, OAuth errors (RFC 6749, 6750, 7591) and problem details (RFC 9457)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gatepost.core.errors import ERRORS, Refusal
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS

VERSION = "2026-11-15"
ERRORS_PAGE = "/reference/errors.html#"  # a page of the documentation that `make docs` builds
UNSUPPORTED_VERSION = Refusal("unsupported_version", f"Gatepost-Version: this server supports {VERSION}")
NO_STORE = ("cache-control", "no-store")
_encode = msgspec.json.Encoder().encode

Header = tuple[str, str]


class LogFields(NamedTuple):
    """What is logged about a response in addition to its status. It never contains text that a caller chose."""

    entry: str = ""
    error: str = ""
    account: str = ""
    client: str = ""
    grant_type: str = ""


class Reply(NamedTuple):
    """A response, before the listener adds the headers that all responses have."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = ()
    media_type: str = "application/json"
    log_fields: LogFields = LogFields()
    published: Sequence[tuple[str, str]] = ()  # events and the deliveries created for them

    def with_headers(self, *headers: Header) -> "Reply":
        return self._replace(headers=(*self.headers, *headers))


def json(status: int, body: Any, *headers: Header) -> Reply:
    """A response with a JSON body."""
    return Reply(status, _encode(body), headers)


def oauth_error(refusal: Refusal, *headers: Header) -> Reply:
    """`error` and `error_description`, in ASCII (RFC 6749, section 5.2). `with_docs_link` adds `error_uri`."""
    body = {"error": refusal.code, "error_description": ascii_text(refusal.detail)}
    return _error(refusal, body, headers, "application/json")


def problem(refusal: Refusal, *headers: Header) -> Reply:
    """RFC 9457 problem details, with the invalid members. `with_docs_link` makes `type` a link to the documentation."""
    body: dict[str, Any] = {
        "type": f"urn:gatepost:error:{refusal.code}",
        "title": ERRORS[refusal.code].meaning,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code,
    }
    if refusal.pointer.startswith("/"):
        body["errors"] = [{"pointer": refusal.pointer, "detail": refusal.detail}]
    return _error(refusal, body, headers, "application/problem+json")


def _error(refusal: Refusal, body: dict[str, Any], headers: tuple[Header, ...], media_type: str) -> Reply:
    retry_after = (("retry-after", str(refusal.retry_after)),) if refusal.retry_after else ()
    headers = (NO_STORE, *retry_after, *headers)
    return Reply(refusal.status, _encode(body), headers, media_type, LogFields(error=refusal.code))


def with_docs_link(reply: Reply, docs_url: str) -> Reply:
    """Add a link to the description of the error code, if the operator has set the URL of the documentation."""
    error = reply.log_fields.error
    if not docs_url or not error:
        return reply
    link = f"{docs_url}{ERRORS_PAGE}{error}"
    body = msgspec.json.decode(reply.body)
    body |= {"type": link} if "type" in body else {"error_uri": link}
    return reply._replace(body=_encode(body))


def refuse(path: str, refusal: Refusal, *headers: Header) -> Reply:
    """An error response, in the format of the area that the path belongs to."""
    return (oauth_error if path.startswith("/oauth/") else problem)(refusal, *headers)


def challenge(refusal: Refusal, base_url: str, scope: str, scheme: str = "Bearer") -> Header:
    """The header WWW-Authenticate: RFC 6750, section 3; RFC 9728, section 5.1; for DPoP also RFC 9449, section 7.1."""
    parts = [f'resource_metadata="{base_url}/.well-known/oauth-protected-resource"']
    if refusal.detail:
        parts = [f'error="{refusal.code}"', f'error_description="{ascii_text(refusal.detail)}"', *parts]
    parts.append(f'scope="{scope}"')
    if scheme == "DPoP":
        parts.append(f'algs="{" ".join(ASSERTION_ALGORITHMS)}"')
    return "www-authenticate", f"{scheme} " + ", ".join(parts)


def ascii_text(text: str) -> str:
    """Replace the characters that RFC 6749, section 5.2 does not allow in an `error_description`."""
    return "".join("'" if char in '"\\' else char if " " <= char <= "~" else "?" for char in text)
