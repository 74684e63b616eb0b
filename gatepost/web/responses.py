"""Responses: JSON, OAuth errors (RFC 6749, 6750, 7591) and problem details (RFC 9457)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gatepost.core.errors import ERRORS, Refusal
from gatepost.core.jwk_sets import ASSERTION_ALGORITHMS

VERSION = "2026-11-15"
ERRORS_PAGE = "/reference/errors.html#"  # a page of the documentation that `make docs` builds
NO_STORE = ("cache-control", "no-store")
_encode = msgspec.json.Encoder().encode

Header = tuple[str, str]


class Said(NamedTuple):
    """What the log says about a response beside its status. It never contains text that a caller chose."""

    entry: str = ""
    error: str = ""
    account: str = ""
    client: str = ""
    grant_type: str = ""


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: tuple[Header, ...] = ()
    media_type: str = "application/json"
    said: Said = Said()
    published: Sequence[tuple[str, str]] = ()  # events and the deliveries created for them

    def adding(self, *headers: Header) -> "Reply":
        return self._replace(headers=(*self.headers, *headers))


def json(status: int, body: Any, *headers: Header) -> Reply:
    return Reply(status, _encode(body), headers)


def oauth_error(refusal: Refusal, *headers: Header) -> Reply:
    """`error` and `error_description`, in ASCII as RFC 6749 section 5.2 requires. `linked` adds `error_uri`."""
    body = {"error": refusal.code, "error_description": ascii_words(refusal.detail)}
    found = json(refusal.status, body, NO_STORE, *_retry_after(refusal), *headers)
    return found._replace(said=Said(error=refusal.code))


def problem(refusal: Refusal, *headers: Header) -> Reply:
    """RFC 9457 problem details, with the members at fault. `linked` makes `type` a link to the documentation."""
    body: dict[str, Any] = {
        "type": f"urn:gatepost:error:{refusal.code}",
        "title": ERRORS[refusal.code].meaning,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code,
    }
    if refusal.pointer.startswith("/"):
        body["errors"] = [{"pointer": refusal.pointer, "detail": refusal.detail}]
    return Reply(
        refusal.status, _encode(body), (NO_STORE, *_retry_after(refusal), *headers), "application/problem+json",
        Said(error=refusal.code),
    )  # fmt: skip


def linked(reply: Reply, docs_url: str) -> Reply:
    """A refusal with a link to the page about its code, if the operator has set the URL of the documentation."""
    if not docs_url or not reply.said.error:
        return reply
    link = f"{docs_url}{ERRORS_PAGE}{reply.said.error}"
    body = msgspec.json.decode(reply.body)
    body |= {"type": link} if "type" in body else {"error_uri": link}
    return reply._replace(body=_encode(body))


def refuse(path: str, refusal: Refusal, *headers: Header) -> Reply:
    """The error format of the area that the path belongs to."""
    return (oauth_error if path.startswith("/oauth/") else problem)(refusal, *headers)


def challenge(refusal: Refusal, base_url: str, scope: str, scheme: str = "Bearer") -> Header:
    """WWW-Authenticate of RFC 6750 section 3 with the `resource_metadata` of RFC 9728 section 5.1; also RFC 9449's."""
    parts = [f'resource_metadata="{base_url}/.well-known/oauth-protected-resource"']
    if refusal.detail:
        parts = [f'error="{refusal.code}"', f'error_description="{ascii_words(refusal.detail)}"', *parts]
    parts.append(f'scope="{scope}"')
    if scheme == "DPoP":
        parts.append(f'algs="{" ".join(ASSERTION_ALGORITHMS)}"')
    return "www-authenticate", f"{scheme} " + ", ".join(parts)


def _retry_after(refusal: Refusal) -> tuple[Header, ...]:
    return (("retry-after", str(refusal.retry_after)),) if refusal.retry_after else ()


def ascii_words(text: str) -> str:
    """The characters that RFC 6749 allows in an `error_description`."""
    return "".join(char if " " <= char <= "~" and char not in '"\\' else "'" if char in '"\\' else "?" for char in text)
