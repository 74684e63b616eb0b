"""Member tables: the members of a resource, from which its check, its JSON Schema and its reference page come."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from gatepost.core.errors import Refusal
from gatepost.core.json_schema import Json, mapping, nullable, problem, string


class Member(msgspec.Struct, frozen=True):
    """One member of a JSON object. In a request, null stands for the default unless `null` is false."""

    name: str
    schema: Json
    description: str = ""
    default_text: str = ""  # if the default is not simply the value in the struct
    rule: Callable[[Any], str] | None = None  # what JSON Schema cannot express; "" if the value is acceptable
    required: bool = False  # when the resource is created
    null: bool = True
    direction: Literal["both", "request", "response"] = "both"
    occasion: Literal["any", "create", "change"] = "any"
    is_reference: bool = False  # the operation looks it up, and an unknown id is not_found
    error: str = ""  # the error code, if it is not that of the table


class MemberTable(NamedTuple):
    """The members of one resource, in the order in which they are checked and shown."""

    noun: str
    members: tuple[Member, ...]
    defaults: Mapping[str, Any]
    error: str = "invalid_request"

    @property
    def request(self) -> dict[str, Member]:
        return {member.name: member for member in self.members if member.direction != "response"}

    @property
    def response(self) -> dict[str, Member]:
        return {member.name: member for member in self.members if member.direction != "request"}

    def problem(self, name: str, value: Any) -> str:
        """Return what is wrong with the value of a member, or "" if nothing is."""
        member = self.request[name]
        return problem(member.schema, value) or (member.rule(value) if member.rule else "")

    def refusal(self, name: str, detail: str) -> Refusal:
        member = self.request.get(name)
        pointer = name[:64].replace("~", "~0").replace("/", "~1")  # RFC 6901, section 3
        return Refusal((member.error if member else "") or self.error, f"{name[:64]}: {detail}", f"/{pointer}")


def table(noun: str, struct: type[msgspec.Struct], *members: Member, error: str = "invalid_request") -> MemberTable:
    """Return the table of a resource, with the defaults of the struct that stores it."""
    names = {member.name for member in members}
    defaults = {}
    for field in msgspec.structs.fields(struct):
        if field.name in names and not field.required:
            made = field.default_factory is not msgspec.NODEFAULT
            defaults[field.name] = field.default_factory() if made else field.default
    return MemberTable(noun, members, defaults, error)


def read(
    table: MemberTable, body: Mapping[str, Any], *, creating: bool, ignore_unknown: bool = False
) -> dict[str, Any] | Refusal:
    """Return the values of the members that were sent, each checked by itself. Null becomes the default."""
    members = table.request
    unknown = [name for name in body if name not in members]
    if unknown and not ignore_unknown:
        return table.refusal(unknown[0], f"unknown member; {table.noun} has {', '.join(members)}")
    values: dict[str, Any] = {}
    for name, member in members.items():
        if name not in body:
            if creating and member.required:
                return table.refusal(name, f"required: {member.description}")
            continue
        value = body[name]
        if value is None and member.null:
            values[name] = table.defaults.get(name)
        elif not member.is_reference:
            if problem := table.problem(name, value):
                return table.refusal(name, problem)
            values[name] = value
    return values


def request_schemas(table: MemberTable, occasion: Literal["any", "create", "change"] = "any") -> dict[str, Json]:
    """Return the schema of each member in a request that creates, changes, or does either."""
    schemas = {}
    for name, member in table.request.items():
        if "any" in (occasion, member.occasion) or occasion == member.occasion:
            default = default_text(table, member)
            description = f"{member.description} Default: {default}." if default else member.description
            schemas[name] = _described(nullable(member.schema) if member.null else member.schema, description.strip())
    return schemas


def response_schemas(table: MemberTable, *, omits_none: bool = False) -> dict[str, Json]:
    """Return the schema of each member in a response, where a member that is None is null unless it is omitted."""
    schemas = {}
    for name, member in table.response.items():
        may_be_null = table.defaults.get(name, ...) is None and not omits_none
        schemas[name] = _described(nullable(member.schema) if may_be_null else member.schema, member.description)
    return schemas


def _described(schema: Json, description: str) -> Json:
    return schema | {"description": description} if description else schema


def default_text(table: MemberTable, member: Member) -> str:
    """Return the default in words, or "" if the member is required or has none."""
    if member.default_text or member.required:
        return member.default_text
    default = table.defaults.get(member.name)
    if default in (None, "", [], {}):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


METADATA = Member(
    "metadata",
    mapping(
        string(1, 64), string(0, 512), 50,
        expects="an object of at most 50 strings: names of 1 to 64 characters, values of at most 512",
    ),
    "Data of your own. Gatepost stores and returns it.",
)  # fmt: skip
