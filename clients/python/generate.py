"""Write gatepost_client/schemas.py: the types of the six operations, from the OpenAPI document of the service.

python clients/python/generate.py
"""

import json
import keyword
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "gatepost" / "openapi.json"
TARGET = HERE / "gatepost_client" / "schemas.py"
HEAD = '''"""The types of the six operations. Generated from the OpenAPI document by `make clients`; do not edit."""

from datetime import datetime
from typing import Any, Literal, Required, TypedDict

'''
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
DELIVERIES = "/webhooks/deliveries"
# The parameters of the listing: all of them, and those for an iterator over deliveries, without these.
QUERIES: dict[str, tuple[str, ...]] = {"DeliveryQuery": (), "DeliveryFilters": ("view", "interval", "cursor")}


class Types:
    """The definitions so far, by name, in the order in which they can be read."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.definitions: dict[str, str] = {}

    def add(self, name: str, schema: dict[str, Any]) -> str:
        """Define the type of a schema under a name, and return the name."""
        if name not in self.definitions:
            self.definitions[name] = ""  # reserves the place after the types that it needs
            text = self._object(name, schema) if "properties" in schema else f"{name} = {self.type(name, schema)}"
            del self.definitions[name]
            self.definitions[name] = text
        return name

    def type(self, name: str, schema: dict[str, Any]) -> str:
        """The annotation for a schema. An object in it is defined under the name."""
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "enum" in schema or "const" in schema:
            return _literal(schema.get("enum", [schema.get("const")]))
        if "allOf" in schema and "properties" not in schema:
            return self._extended(name, schema["allOf"])
        if "properties" in schema:
            alternatives = {member for part in schema.get("anyOf", ()) for member in part.get("properties", ())}
            # The members of a JWK depend on its type, and it may have others.
            return "dict[str, Any]" if alternatives - schema["properties"].keys() else self.add(name, schema)
        if all("title" in part for part in schema.get("anyOf", [{}])):
            return _union(self.type(name + _suffix(part), part) for part in schema["anyOf"])
        if "type" in schema:
            kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return _union(self._kind(name, kind, schema) for kind in kinds)
        if "anyOf" in schema:
            return _union(self.type(name, part) for part in schema["anyOf"])
        return "Any"

    def _kind(self, name: str, kind: str, schema: dict[str, Any]) -> str:
        if kind == "array":
            return f"list[{self.type(name.removesuffix('s'), schema.get('items', {}))}]"
        if kind == "object":
            inner = schema.get("additionalProperties", True)
            return f"dict[str, {self.type(name, inner) if isinstance(inner, dict) else 'Any'}]"
        return SCALARS[kind]

    def _reference(self, pointer: str) -> str:
        steps = pointer.removeprefix("#/").split("/")
        schema: Any = self.document
        for step in steps:
            schema = schema[step]
        name = "".join(_camel(step) for step in steps[2:] if step != "properties")
        return self.add(name, schema) if len(steps) == 3 else self.type(name, schema)

    def _object(self, name: str, schema: dict[str, Any], base: str = "TypedDict") -> str:
        members = schema["properties"]
        required = schema.get("required", ())
        types = {member: self.type(name + _camel(member), members[member]) for member in sorted(members)}
        types = {member: f"Required[{text}]" if member in required else text for member, text in types.items()}
        if all(member.isidentifier() and not keyword.iskeyword(member) for member in types):
            body = "".join(f"\n    {member}: {text}" for member, text in types.items())
            return f'class {name}({base}, total=False):\n    """{_sentence(name, schema)}"""\n{body}'
        body = ", ".join(f'"{member}": {text}' for member, text in types.items())
        return f'{name} = TypedDict("{name}", {{{body},}}, total=False)'

    def _extended(self, name: str, parts: list[dict[str, Any]]) -> str:
        base, extension = parts
        self.definitions[name] = self._object(name, extension, self._reference(base["$ref"]))
        return name


def _literal(values: list[Any]) -> str:
    texts = [json.dumps(value) if isinstance(value, str) else repr(value) for value in values if value is not None]
    return _union([f"Literal[{', '.join(texts)}]"] * bool(texts) + ["None"] * (None in values))


def _union(types: Iterable[str]) -> str:
    parts = dict.fromkeys(part for text in types for part in text.split(" | "))
    return " | ".join(sorted(parts, key=lambda part: part == "None"))


def _suffix(schema: dict[str, Any]) -> str:
    """What distinguishes an alternative that has a title, such as the grant type of a token request."""
    return _camel(schema.get("title", "").rpartition(":")[2])


def _camel(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[_-]", text))


def _sentence(name: str, schema: dict[str, Any]) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()
    text = schema.get("description", "")
    return text if 0 < len(text) < 100 else f"{words[:1].upper()}{words[1:]}."


def _query(types: Types, name: str, without: tuple[str, ...]) -> str:
    components = types.document["components"]["parameters"]
    lines = []
    for reference in types.document["paths"][DELIVERIES]["get"]["parameters"]:
        parameter = components[reference["$ref"].rpartition("/")[2]]
        if parameter["in"] == "query" and parameter["name"] not in without:
            schema = parameter["schema"]
            text = types.type(_camel(parameter["name"]), schema)
            lines.append(f"{parameter['name']}: {text}{' | datetime' if schema.get('format') == 'date-time' else ''}")
    return f'class {name}(TypedDict, total=False):\n    """Parameters of GET {DELIVERIES}."""\n\n    ' + "\n    ".join(
        lines
    )


def render() -> str:
    """The text of the module."""
    document = json.loads(DOCUMENT.read_text("utf-8"))
    types = Types(document)
    for name, schema in document["components"]["schemas"].items():
        types.add(name, schema)
    texts = [f'VERSION = "{document["info"]["version"]}"', *types.definitions.values()]
    texts += [_query(types, name, without) for name, without in QUERIES.items()]
    format_ = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    done = subprocess.run(format_, input=HEAD + "\n\n\n".join(texts), check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")
