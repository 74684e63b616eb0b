"""Resources that all accounts share: the operator defines their scopes and fixed claims. No I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from gatepost.core import clock
from gatepost.core import json_schema as schema
from gatepost.oauth import resources, scopes
from gatepost.oauth.scopes import Scope

NEW_FORM = (
    "shared_resources: name the scopes of each shared resource and, if there are any, the fixed claims of its tokens; "
    'in the settings file write shared_resources = { "https://a.example" = { scopes = ["api:read"], '
    'claims = { tier = "x" } } }, in the environment the same as JSON: '
    '{"https://a.example": {"scopes": ["api:read"], "claims": {"tier": "x"}}}'
)


class SharedResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scopes of a shared resource, and the claims that machine tokens for it have instead of the client's."""

    scopes: list[str]
    claims: dict[str, Any] = {}


class SharedResources(NamedTuple):
    """All shared resources, indexed for the decisions that look them up."""

    by_name: Mapping[str, SharedResource] = {}  # by resources.owned_as: without trailing slashes
    by_scope: Mapping[str, str] = {}  # the resource of each scope

    def scope(self, account: str, name: str) -> Scope | None:
        resource = self.by_scope.get(name)
        return Scope(account, name, resource, clock.EPOCH, clock.EPOCH) if resource is not None else None

    def includes(self, resource: str) -> bool:
        return bool(self.by_name) and resources.owned_as(resource) in self.by_name

    def claims(self, resource: str) -> dict[str, Any] | None:
        """The fixed claims of machine tokens for the resource; None if it is not shared: the client's claims apply."""
        shared = self.by_name.get(resources.owned_as(resource)) if self.by_name else None
        return None if shared is None else shared.claims


def index(shared: Mapping[str, SharedResource]) -> SharedResources:
    """The setting `shared_resources`, indexed."""
    return SharedResources(
        {resources.owned_as(resource): definition for resource, definition in shared.items()},
        {name: resource for resource, definition in shared.items() for name in definition.scopes},
    )


def problem(shared: Mapping[str, SharedResource], base_url: str) -> str:
    """What is wrong with the setting; empty if nothing is."""
    resource_of: dict[str, str] = {}
    owned: set[str] = set()
    for resource, definition in shared.items():
        problem = resources.problem(resource, base_url) or _definition_problem(definition)
        if problem:
            return f"{resource!r} {problem}"
        if resources.owned_as(resource) in owned:
            return f"{resource!r} is named twice"
        owned.add(resources.owned_as(resource))
        for name in definition.scopes:
            if resource_of.setdefault(name, resource) != resource:
                return f"{resource!r} has the scope {name}, which {resource_of[name]!r} has already"
    return ""


def _definition_problem(shared: SharedResource) -> str:
    if not shared.scopes or len(set(shared.scopes)) != len(shared.scopes):
        return "must name its scopes, each once"
    for name in shared.scopes:
        if not scopes.SCOPE_TOKEN.fullmatch(name) or name in scopes.BUILT_IN or name.startswith(scopes.RESERVED):
            return f"must not have the scope {name!r}: it is not a scope name, or the name of a built-in scope"
    if msgspec.json.decode(msgspec.json.encode(shared.claims)) != shared.claims:  # such as a date in a TOML file
        return "must have claims with JSON values"
    problem = schema.problem(scopes.FIXED_CLAIMS, shared.claims) or scopes.fixed_claims_size(shared.claims)
    return f"has claims, which {problem}" if problem else ""
