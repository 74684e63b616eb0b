"""Member tables: a value is checked by exactly the schema that is published, and a refusal names the member."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from gatepost.core import json_schema as schema
from gatepost.core.errors import Refusal
from gatepost.core.json_schema import Json, problem, published
from gatepost.core.members import Member, MemberTable, read, request_schemas, response_schemas, table
from gatepost.oauth import client_grants, clients, scopes
from gatepost.webhooks import endpoints, subscriptions

NAME = schema.matching("[a-z]+", expects="lower-case letters")
SCHEMAS: dict[str, Json] = {
    "string": schema.string(1, 3),
    "pattern": NAME,
    "search": {"type": "string", "pattern": "^a"},
    "integer": schema.integer(1, 3, unit="seconds"),
    "boolean": schema.boolean(),
    "enum": schema.one_of(["a", "b"]),
    "nullable enum": schema.nullable(schema.one_of(["a", "b"])),
    "array": schema.array(schema.string(1, 3), minItems=1, maxItems=2, uniqueItems=True),
    "nullable array": schema.nullable(schema.array(schema.string(1, 3), uniqueItems=True)),
    "mapping": schema.mapping(NAME, schema.integer(1, 3), 2),
    "object": schema.request_object({"a": schema.boolean(), "b": schema.nullable(NAME)}, "a"),
    "not": schema.string(0, 9) | {"not": {"enum": ["a"]}},
    "anyOf": {"anyOf": [schema.boolean(), schema.request_object({"a": NAME}, "a")]},
    "types": {"type": ["string", "number", "null"], "maxLength": 2},
}
VALUES: list[Any] = [
    None, True, False, 0, 1, 3, 4, -1, 1.5, 1 << 70, "", "a", "b", "abc", "abcd", "A", "a\n", "\n", "é", [], ["a"],
    ["a", "a"], ["a", "b"], ["a", "b", "c"], [""], [5], [None], [["a"]], {}, {"a": 1}, {"a": 4}, {"a": True},
    {"a": "a"},    {"A": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"a": True, "b": None}, {"a": True, "b": "a"},
    {"a": True, "b": 5}, {"a": True, "c": 1}, {"b": "a"},
]  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_check_agrees_with_a_validator(name: str, value: Any) -> None:
    validator = jsonschema_rs.Draft202012Validator(published(SCHEMAS[name]))
    assert (problem(SCHEMAS[name], value) == "") == validator.is_valid(value), problem(SCHEMAS[name], value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("string", "", "must be a string of 1 to 3 characters"),
        ("pattern", "A", "must be lower-case letters"),
        ("integer", True, "must be a whole number of seconds from 1 to 3"),
        ("boolean", 1, "must be true or false"),
        ("enum", "c", "must be one of a, b"),
        ("nullable enum", "c", "must be one of a, b, null"),
        ("array", [], "must be a list of 1 to 2 items"),
        ("array", ["a", ""], "item 2 must be a string of 1 to 3 characters"),
        ("array", ["a", "a"], "must not contain an item twice"),
        ("mapping", {"a": 1, "b": 1, "c": 1}, "must be an object of at most 2 members"),
        ("mapping", {"A": 1}, "'A' must be lower-case letters"),
        ("mapping", {"a": 4}, "a must be a whole number from 1 to 3"),
        ("object", {"a": 1}, "a must be true or false"),
        ("object", {"b": None}, "must have the member a"),
        ("object", {"a": True, "c": 1}, "c must be left out: it is unknown here"),
    ],
)
def test_a_problem_says_where_and_what_would_be_right(name: str, value: Any, words: str) -> None:
    assert problem(SCHEMAS[name], value) == words


class Box(msgspec.Struct, frozen=True):
    """A resource for these tests."""

    label: str
    size: int = 5
    tags: list[str] = []
    owner: str | None = None


BOX = table(
    "a box",
    Box,
    Member("id", schema.identifier("box"), occasion="change", is_reference=True, null=False),
    Member("label", schema.string(1, 9), "What is on it.", required=True, null=False, error="invalid_scope"),
    Member(
        "size", schema.integer(1, 9), "How large it is.", rule=lambda value: "must be odd" if value % 2 == 0 else ""
    ),
    Member("tags", schema.array(schema.string(1, 9)), default_text="those of the room"),
    Member("owner", schema.string(1, 9)),
    Member("empty", schema.boolean(), direction="request"),
    Member("weight", schema.count(), "In grams.", direction="response"),
)


def refusal(body: dict[str, Any]) -> Refusal:
    found = read(BOX, body, creating=True)
    assert isinstance(found, Refusal)
    return found


class TestReading:
    def test_values_are_those_sent(self) -> None:
        body = {"label": "a", "size": 7, "tags": ["x"], "empty": True}
        assert read(BOX, body, creating=True) == body

    def test_null_is_the_default(self) -> None:
        body = {"label": "a", "size": None, "tags": None, "owner": None, "empty": None}
        assert read(BOX, body, creating=True) == {
            "label": "a", "size": 5, "tags": [], "owner": None, "empty": None,
        }  # fmt: skip

    def test_only_creation_needs_the_required_members(self) -> None:
        assert refusal({"size": 1}) == Refusal("invalid_scope", "label: required: What is on it.", "/label")
        assert read(BOX, {"size": 1}, creating=False) == {"size": 1}
        assert isinstance(read(BOX, {"label": None}, creating=False), Refusal)

    def test_a_reference_is_left_to_the_operation(self) -> None:
        assert read(BOX, {"id": 5}, creating=False) == {}

    def test_a_rule_comes_after_the_schema(self) -> None:
        assert refusal({"label": "a", "size": 4}).detail == "size: must be odd"
        assert refusal({"label": "a", "size": "4"}).detail == "size: must be a whole number from 1 to 9"

    @pytest.mark.parametrize(
        ("name", "pointer"), [("weight", "/weight"), ("a/b~c", "/a~1b~0c"), ("x" * 99, "/" + "x" * 64)]
    )
    def test_an_unknown_member_is_named(self, name: str, pointer: str) -> None:
        found = refusal({name: 1})
        assert (found.code, found.pointer) == ("invalid_request", pointer)
        assert found.detail == f"{name[:64]}: unknown member; a box has id, label, size, tags, owner, empty"
        assert read(BOX, {name: 1, "label": "a"}, creating=True, ignore_unknown=True) == {"label": "a"}


class TestSchemas:
    def test_of_requests(self) -> None:
        found = request_schemas(BOX, "create")
        assert list(found) == ["label", "size", "tags", "owner", "empty"]
        assert found["size"]["description"] == "How large it is. Default: `5`."
        assert found["size"]["type"] == ["integer", "null"]
        assert found["label"]["type"] == "string"
        assert found["tags"]["description"] == "Default: those of the room."
        assert list(request_schemas(BOX, "change")) == list(request_schemas(BOX)) == ["id", *found]

    def test_of_responses(self) -> None:
        found = response_schemas(BOX)
        assert list(found) == ["id", "label", "size", "tags", "owner", "weight"]
        assert found["size"]["description"] == "How large it is."
        assert found["owner"]["type"] == ["string", "null"]
        assert found["size"]["type"] == "integer"


INTERPRETED = {
    "type", "enum", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "maxProperties", "required",
    "pattern", "not", "anyOf", "items", "uniqueItems", "properties", "propertyNames", "additionalProperties",
}  # fmt: skip
OTHERS = {"description", "examples", schema.EXPECTS, "format", "$ref", "if", "then", "else"}
TABLES: list[MemberTable] = [
    scopes.MEMBERS,
    clients.MEMBERS,
    client_grants.GRANT_MEMBERS,
    endpoints.MEMBERS,
    subscriptions.MEMBERS,
    subscriptions.REPLAY_MEMBERS,
]


def keywords(found: Json) -> set[str]:
    """Every keyword of a schema and of those in it."""
    inner: list[Json] = [found[name] for name in ("items", "not", "propertyNames") if name in found]
    inner += [*found.get("anyOf", []), *found.get("properties", {}).values()]
    inner += [each for each in [found.get("additionalProperties")] if isinstance(each, dict)]
    return set(found).union(*map(keywords, inner))


@pytest.mark.parametrize("members", TABLES, ids=lambda members: members.noun)
def test_every_keyword_of_a_member_is_checked(members: MemberTable) -> None:
    used = set().union(*(keywords(member.schema) for member in members.request.values()))
    assert used <= INTERPRETED | OTHERS
    assert all(member.description for member in members.members), "say what it is for"
