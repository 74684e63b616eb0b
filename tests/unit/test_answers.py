"""Answers: OAuth errors, problem details and challenges in the form that their RFC gives them."""

import json
import re
from typing import Any

import pytest

from gatepost.core.errors import ERRORS, Refusal
from gatepost.web import responses
from gatepost.web.responses import Reply, challenge, oauth_error, problem, refuse, with_docs_link

BASE_URL = "https://gatepost.example"
METADATA = f'resource_metadata="{BASE_URL}/.well-known/oauth-protected-resource"'
HOSTILE = [
    'say "hello"',
    "back\\slash",
    "line\r\nSet-Cookie: a=b",
    "tab\tnul\0",
    "größer ≥ 😀",
    "\ud800",
    '", error="x',
    "\x7f\x80\x85\u2028",
]


def members(reply: Reply) -> Any:
    return json.loads(reply.body)


def header(reply: Reply, name: str) -> list[str]:
    return [value for found, value in reply.headers if found == name]


class TestJSON:
    def test_an_answer_that_refuses_nothing_has_no_link(self) -> None:
        reply = responses.json(200, {"error": "of the receiver"})
        assert with_docs_link(reply, "https://docs.example.com") == reply

    def test_a_body_and_its_headers(self) -> None:
        assert responses.json(201, {"a": "é"}, ("x", "y")) == Reply(201, '{"a":"é"}'.encode(), (("x", "y"),))
        assert responses.json(200, {}).media_type == "application/json"


@pytest.mark.parametrize("code", ERRORS)
class TestEveryCode:
    def test_as_an_oauth_error(self, code: str) -> None:
        """RFC 6749, section 5.2."""
        reply = oauth_error(Refusal(code, "because", "/member"), ("gatepost-event", "evt_1"))
        assert (reply.status, reply.media_type) == (ERRORS[code].status, "application/json")
        assert members(reply) == {"error": code, "error_description": "because"}
        assert with_docs_link(reply, "") == reply
        link = f"https://docs.example.com/gatepost/reference/errors.html#{code}"
        described = with_docs_link(reply, "https://docs.example.com/gatepost")
        assert members(described) == members(reply) | {"error_uri": link}
        assert header(reply, "cache-control") == ["no-store"]
        assert header(reply, "gatepost-event") == ["evt_1"]

    def test_as_problem_details(self, code: str) -> None:
        """RFC 9457, section 3."""
        reply = problem(Refusal(code, "because", "/a/0"), ("gatepost-event", "evt_1"))
        assert (reply.status, reply.media_type) == (ERRORS[code].status, "application/problem+json")
        assert members(reply) == {
            "type": f"urn:gatepost:error:{code}",
            "title": ERRORS[code].meaning,
            "status": ERRORS[code].status,
            "detail": "because",
            "code": code,
            "errors": [{"pointer": "/a/0", "detail": "because"}],
        }
        link = f"https://docs.example.com/gatepost/reference/errors.html#{code}"
        described = with_docs_link(reply, "https://docs.example.com/gatepost")
        assert members(described) == members(reply) | {"type": link}
        assert header(reply, "cache-control") == ["no-store"]
        assert header(reply, "gatepost-event") == ["evt_1"]


class TestErrors:
    @pytest.mark.parametrize("detail", HOSTILE)
    def test_a_description_is_plain_ascii(self, detail: str) -> None:
        """RFC 6749, section 5.2: %x20-21 / %x23-5B / %x5D-7E."""
        result = members(oauth_error(Refusal("invalid_request", detail)))["error_description"]
        assert re.fullmatch(r"[\x20-\x21\x23-\x5b\x5d-\x7e]*", result)
        assert len(result) == len(detail)

    def test_what_is_plain_stays(self) -> None:
        detail = "scope: read's is not in [a-z] {x} ~ #!"
        assert members(oauth_error(Refusal("invalid_scope", detail)))["error_description"] == detail
        assert members(oauth_error(Refusal("invalid_scope", 'a "b" \\c')))["error_description"] == "a 'b' 'c"

    @pytest.mark.parametrize("pointer", ["", "scope", "a/b"])
    def test_only_a_pointer_is_pointed_at(self, pointer: str) -> None:
        assert "errors" not in members(problem(Refusal("invalid_request", "x", pointer)))

    @pytest.mark.parametrize("write", [oauth_error, problem])
    def test_when_to_try_again(self, write: Any) -> None:
        assert header(write(Refusal("too_many_failures", "x", retry_after=7)), "retry-after") == ["7"]
        assert header(write(Refusal("too_many_failures", "x")), "retry-after") == []

    @pytest.mark.parametrize(
        ("path", "media_type"),
        [
            ("/oauth/tokens", "application/json"),
            ("/oauth/nowhere", "application/json"),
            ("/webhooks/endpoints", "application/problem+json"),
            ("/", "application/problem+json"),
            ("/oauth", "application/problem+json"),
            ("/x/oauth/", "application/problem+json"),
        ],
    )
    def test_the_form_is_that_of_the_area(self, path: str, media_type: str) -> None:
        assert refuse(path, Refusal("not_found", "x")).media_type == media_type


class TestChallenges:
    def test_with_a_reason(self) -> None:
        """RFC 6750, section 3; RFC 9728, section 5.1."""
        assert challenge(Refusal("invalid_token", "expired"), BASE_URL, "gatepost:clients") == (
            "www-authenticate",
            f'Bearer error="invalid_token", error_description="expired", {METADATA}, scope="gatepost:clients"',
        )

    def test_without_credentials_no_reason_is_given(self) -> None:
        assert challenge(Refusal("invalid_token", ""), BASE_URL, "gatepost:scopes") == (
            "www-authenticate",
            f'Bearer {METADATA}, scope="gatepost:scopes"',
        )

    @pytest.mark.parametrize("detail", HOSTILE)
    def test_no_detail_gets_out_of_its_quotes(self, detail: str) -> None:
        _, value = challenge(Refusal("insufficient_scope", detail), BASE_URL, "gatepost:clients")
        assert re.fullmatch(r"[\x20-\x7e]+", value)
        assert re.findall(r'(\w+)="[^"\\]*"', value) == ["error", "error_description", "resource_metadata", "scope"]
        assert value.count('"') == 8
