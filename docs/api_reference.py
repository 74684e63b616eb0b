"""Turns gatepost/openapi.json into the Markdown of one page: every operation, its members, responses and errors.

The page is made when the site is built and is not committed, so it cannot differ from the description.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

OPENAPI = Path(__file__).parent.parent / "gatepost" / "openapi.json"
TITLE = "API reference"
_ID_PATTERN = re.compile(r"\^(\w+_)\[0-9a-v\]")
_LONGEST_PATTERN = 60  # a longer regular expression is left to the JSON document
_VARIANTS = {"Registration": "to create", "Creation": "to create", "Redefinition": "to change"}

Json = dict[str, Any]


class Member(NamedTuple):
    name: str
    schema: Json
    required: bool


class Reference:
    """The description, and the Markdown made from it. Links are relative to openapi.json itself."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def markdown(self) -> str:
        parts = [self._introduction()]
        parts += [self._operation(*operation) for operation in self.operations]
        parts += [self._headers(), self._objects()]
        return "\n\n".join(parts) + "\n"

    def _introduction(self) -> str:
        rows = [
            (f"[{operation['summary']}](#{operation['operationId']})", f"`{method} {path}`", self._access(operation))
            for method, path, operation in self.operations
        ]
        return (
            f"# {TITLE}\n\n"
            f"The operations of the public listener, as `gatepost/openapi.json` describes them for version "
            f"`{self.document['info']['version']}` of the API. The operations plane serves the same document at "
            "`/openapi.json`. [HTTP](../docs/reference/http.md) explains clients, scopes and tokens and lists the "
            "endpoints of the standards; [webhook operations](../docs/reference/webhooks.md) explains the others.\n\n"
            + _table(("Operation", "Request", "Authorization"), rows)
        )

    def _access(self, operation: Json) -> str:
        scopes = [scope for way in operation["security"] for scope in way.get("token", ())]
        return f"access token with {_codes(scopes)}" if scopes else "client authentication"

    # --- one operation

    def _operation(self, method: str, path: str, operation: Json) -> str:
        name = operation["operationId"]
        parts = [
            f"## {operation['summary']} {{#{name}}}",
            f"`{method} {path}`",
            operation["description"],
            f"Authorization: {self._access(operation)}.",
        ]
        parameters = [self._resolve(parameter) for parameter in operation["parameters"]]
        rows = [
            (
                f'<a id="{name}.{parameter["name"]}"></a>`{parameter["name"]}`',
                parameter["in"],
                self._type(parameter["schema"]),
                self._description(parameter["schema"], parameter.get("description", "")),
            )
            for parameter in parameters
        ]
        parts += [f"### Parameters {{#{name}-parameters}}", _table(("Name", "In", "Type", "Description"), rows)]
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            parts += [f"### Request body {{#{name}-request}}", f"Content type: `{kind}`."]
            parts += self._request(name, self._resolve(content["schema"]))
        return "\n\n".join([*parts, *self._responses(name, operation["responses"])])

    def _request(self, name: str, schema: Json) -> Iterator[str]:
        variants = schema.get("anyOf", [])
        if variants and all("title" in variant for variant in variants):
            yield schema["description"]
            for variant in variants:
                short = variant["title"].rpartition(":")[2]
                yield f"#### {variant['title']} {{#{name}-{short}}}"
                yield self._members(f"{name}.{short}", self._flatten(variant))
        elif variants and all("$ref" in variant for variant in variants):
            yield self._merged(name, variants)
        else:
            yield schema.get("description", "")
            yield self._members(name, self._flatten(schema))

    def _merged(self, name: str, variants: list[Json]) -> str:
        """Return one table for the two bodies that create and change a resource: most members are in both."""
        bodies = {
            next(words for ending, words in _VARIANTS.items() if variant["$ref"].endswith(ending)): variant
            for variant in variants
        }
        descriptions = [
            f"- {words.capitalize()}: {self._resolve(body)['description']}" for words, body in bodies.items()
        ]
        found: dict[str, tuple[Json, list[str], list[str]]] = {}
        for words, body in bodies.items():
            for member in self._flatten(self._resolve(body)):
                _, accepted, required = found.setdefault(member.name, (member.schema, [], []))
                accepted.append(words)
                if member.required:
                    required.append(words)
        top = {member_name for member_name, (*_, required) in found.items() if required}
        ordered = sorted(found.items(), key=lambda item: re.split(r"[.\[]", item[0])[0] not in top)
        rows = []
        for member_name, (schema, accepted, required) in ordered:
            condition = "yes" if len(required) == len(bodies) else required[0] if required else ""
            condition = condition or (f"no; only {accepted[0]}" if len(accepted) < len(bodies) else "no")
            rows.append((*self._name_and_type(name, member_name, schema), condition, self._description(schema)))
        return "\n".join(descriptions) + "\n\n" + _table(("Member", "Type", "Required", "Description"), rows)

    def _responses(self, name: str, responses: Json) -> Iterator[str]:
        succeeded = {status: response for status, response in responses.items() if status < "300"}
        failed = {status: response for status, response in responses.items() if status >= "300"}
        yield f"### Responses {{#{name}-responses}}"
        rows = [
            (status, self._body_type(response), _cell(response["description"]))
            for status, response in succeeded.items()
        ]
        yield _table(("Status", "Body", "Description"), rows)
        yield f"### Errors {{#{name}-errors}}"
        [body] = {self._body_type(response) for response in failed.values()}
        yield f"The body of an error is {body}."
        yield _table(
            ("Status", "Code", "Meaning"),
            (
                (status, f"[`{code}`](../docs/reference/errors.md#{code})", _cell(meaning))
                for status, response in failed.items()
                for code, meaning in re.findall(r"^- `(\w+)`: (.+)$", response["description"], re.MULTILINE)
            ),
        )

    def _body_type(self, response: Json) -> str:
        [(kind, content)] = response["content"].items()
        schema = content["schema"].get("allOf", [content["schema"]])[0]
        return f"{self._type(schema)} as `{kind}`"

    # --- what the operations share

    def _headers(self) -> str:
        rows = []
        for name, header in self.document["components"]["headers"].items():
            statuses = sorted(
                {
                    status
                    for _, _, operation in self.operations
                    for status, response in operation["responses"].items()
                    if name in response["headers"]
                }
            )
            everywhere = statuses == sorted({status for *_, op in self.operations for status in op["responses"]})
            text = self._description(header["schema"], header.get("description", ""))
            when = "always" if header.get("required") else "where it applies"
            rows.append((f"`{name}`", f"{'all' if everywhere else ', '.join(statuses)}; {when}", text))
        return "## Response headers\n\n" + _table(("Header", "Responses", "Description"), rows)

    def _objects(self) -> str:
        """Describe every schema that another part of the page links to."""
        parts = ["## Objects"]
        schemas, described = self.document["components"]["schemas"], set(self._request_bodies())
        for name, schema in schemas.items():
            if name not in described:
                alternatives = [self._type(variant) for variant in schema.get("anyOf", []) if "$ref" in variant]
                parts += [f"### {name} {{#{name}}}", schema.get("description", "")]
                parts.append(f"{' or '.join(alternatives)}." if alternatives else "")
                parts.append("" if alternatives else self._members(name, self._flatten(schema)))
        return "\n\n".join(part for part in parts if part)

    def _request_bodies(self) -> Iterator[str]:
        for *_, operation in self.operations:
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield _last(content["schema"]["$ref"])
                for variant in self._resolve(content["schema"]).get("anyOf", []):
                    if "$ref" in variant:
                        yield _last(variant["$ref"])

    def _members(self, name: str, members: Iterable[Member]) -> str:
        rows = [
            (
                *self._name_and_type(name, member.name, member.schema),
                "yes" if member.required else "no",
                self._description(member.schema),
            )
            for member in members
        ]
        return _table(("Member", "Type", "Required", "Description"), rows)

    def _name_and_type(self, owner: str, name: str, schema: Json) -> tuple[str, str]:
        anchor = f"{owner}.{name.replace('[]', '')}"
        return f'<a id="{anchor}"></a>`{name}`', self._type(schema)

    # --- schemas

    def _resolve(self, schema: Json) -> Json:
        while "$ref" in schema:
            found: Any = self.document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            schema = found
        return schema

    def _flatten(self, schema: Json) -> list[Member]:
        """Return every member once; where variants of an object share a name, with the values of all of them."""
        found: dict[str, Member] = {}
        for member in self._every_member(schema):
            before = found.get(member.name)
            if before:
                options = [*before.schema.get("anyOf", [before.schema]), member.schema]
                member = Member(member.name, {"anyOf": options}, before.required and member.required)  # noqa: PLW2901
            found[member.name] = member
        return list(found.values())

    def _every_member(self, schema: Json, prefix: str = "") -> Iterator[Member]:
        """Yield the members of an object and, as `outer.inner` and `outer[].inner`, those of the objects inside it."""
        members, required = schema.get("properties", {}), schema.get("required", [])
        for name in [
            *(name for name in required if name in members),
            *(name for name in members if name not in required),
        ]:
            yield Member(prefix + name, members[name], name in required)
            for ending, inner in self._inner_objects(members[name]):
                yield from self._every_member(inner, f"{prefix}{name}{ending}.")

    def _inner_objects(self, schema: Json) -> Iterator[tuple[str, Json]]:
        if _is_object_link(schema):
            return
        schema = self._resolve(schema)
        if "properties" in schema:
            yield "", schema
        for ending, inner in self._inner_objects(schema["items"]) if "items" in schema else ():
            yield f"[]{ending}", inner
        for option in [*schema.get("anyOf", []), *schema.get("allOf", [])]:
            yield from self._inner_objects(option)

    def _type(self, schema: Json) -> str:
        if _is_object_link(schema):
            return f"[{_last(schema['$ref'])}](#{_last(schema['$ref'])})"
        schema = self._resolve(schema)
        if "allOf" in schema and "type" not in schema:
            return " with ".join(dict.fromkeys(self._type(part) for part in schema["allOf"]))
        if "anyOf" in schema and "type" not in schema:
            return " or ".join(sorted(dict.fromkeys(map(self._type, schema["anyOf"])), key=lambda kind: kind == "null"))
        values = _values(schema)
        untyped = "string" if values and all(isinstance(value, str) for value in values) else "any JSON value"
        named = schema.get("type", untyped)
        kinds = [named] if isinstance(named, str) else named
        text = " or ".join(self._kind(kind, schema) for kind in kinds if kind != "null")
        return f"{text}, or null" if "null" in kinds and text else text or "null"

    def _kind(self, kind: str, schema: Json) -> str:
        if kind == "array" and "items" in schema:
            return f"array of {self._type(schema['items'])}"
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            return f"map of {self._type(schema['additionalProperties'])}"
        id_pattern = _ID_PATTERN.match(schema.get("pattern", ""))
        if kind == "string" and id_pattern:
            return f"id `{id_pattern[1]}…`"
        return (
            {"date-time": "RFC 3339 time", "uri": "URL"}.get(schema.get("format", ""), kind)
            if kind == "string"
            else kind
        )

    def _description(self, schema: Json, text: str = "") -> str:
        """Return the description of a value, and the bounds that its schema sets."""
        object_link = _is_object_link(schema)
        schema = self._resolve(schema)
        parts = [text or ("" if object_link else schema.get("description", ""))]
        parts += ["" if object_link else bound for bound in _bounds(schema)]
        return _cell(" ".join(part for part in parts if part))


def _bounds(schema: Json) -> Iterator[str]:
    """Yield what a schema allows as sentences."""
    values, item_values = _values(schema), _values(schema.get("items", {}))
    if len(values) == 1:
        yield f"The only value is {_codes(values)}."
    elif values or item_values:
        yield f"One of {_codes(values)}." if values else f"Each is one of {_codes(item_values)}."
    schema = {key: value for option in schema.get("anyOf", []) for key, value in option.items()} | schema
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " members"),
    ):
        if high in schema:
            yield f"{schema[low]} to {schema[high]}{unit}." if schema.get(low) else f"At most {schema[high]}{unit}."
        elif schema.get(low):
            yield f"At least {schema[low]}{unit if schema[low] > 1 else unit.removesuffix('s')}."
    pattern = schema.get("pattern", "")
    if pattern and len(pattern) <= _LONGEST_PATTERN and not _ID_PATTERN.match(pattern):
        yield f"Pattern: `{pattern}`."
    if "default" in schema:
        yield f"Default: {_codes([schema['default']])}."
    if schema.get("examples"):
        yield f"Example: {_codes(schema['examples'][:1])}."


def _values(schema: Json) -> list[Any]:
    """Return the values that a schema enumerates, without null."""
    named = [schema["const"]] if "const" in schema else schema.get("enum", [])
    every = [*named, *(value for option in schema.get("anyOf", []) for value in _values(option))]
    return list(dict.fromkeys(value for value in every if value is not None))


def _codes(values: Iterable[Any]) -> str:
    return ", ".join(f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in values)


def _is_object_link(schema: Json) -> bool:
    return re.fullmatch(r"#/components/schemas/\w+", schema.get("$ref", "")) is not None


def _last(pointer: str) -> str:
    return pointer.rpartition("/")[2]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or "–"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown() -> str:
    return Reference(json.loads(OPENAPI.read_text("utf-8"))).markdown()
