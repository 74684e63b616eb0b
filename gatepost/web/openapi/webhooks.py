"""Schemas of the webhook area: endpoints and subscriptions. The members come from the tables of the resources."""

from gatepost.core.json_schema import Json, array, nullable, one_of, ref, request_object, response_object, string
from gatepost.core.members import MemberTable, request_schemas, response_schemas
from gatepost.webhooks import endpoints, subscriptions

_NO_ROTATION: Json = {"rotate_secret": {"enum": [False, None]}}
# With `secret`, a new secret is neither needed nor possible: see endpoint_rules.
_GIVEN_SECRET: Json = {
    "if": {"required": ["secret"], "properties": {"secret": {"type": "string"}}},
    "then": {"properties": _NO_ROTATION | {"signing": {"enum": ["v1", None]}}},
}


def _definition(name: str, table: MemberTable, if_new: Json, if_removed: dict[str, Json]) -> dict[str, Json]:
    """The schemas of requests for a resource. `if_removed` has the members that a request to remove it must not set."""
    noun = name.lower()
    members = request_schemas(table, "create") | {"status": nullable(one_of(["active", "disabled"]))}
    required = [member.name for member in table.members if member.required]
    redefined = f"Changes the members sent of {table.noun} of the account. With id alone, reads the {noun}."
    removed = {"required": ["status"], "properties": {"status": {"const": "removed"}}}
    return {
        f"{name}Definition": {"anyOf": [ref(f"{name}Creation"), ref(f"{name}Redefinition")]},
        f"{name}Creation": request_object(members, *required, description=f"A new {noun}.") | if_new,
        f"{name}Redefinition": request_object(request_schemas(table, "change"), "id", description=redefined)
        | {"if": removed, "then": {"properties": if_removed}},
    }


def schemas() -> dict[str, Json]:
    """The components of the area."""
    fault = response_object({"pointer": {"type": "string", "pattern": "^/"}, "detail": string(1, 4096)})
    problem = {"type": string(1, 200), "title": string(1, 200), "detail": string(1, 4096), "code": string(1, 64)}
    problem |= {"status": {"type": "integer"}, "errors": array(fault)}
    return {
        **_definition("Endpoint", endpoints.MEMBERS, _GIVEN_SECRET, _NO_ROTATION),
        "Endpoint": response_object(response_schemas(endpoints.MEMBERS), *endpoints.OPTIONAL_IN_RESPONSES),
        **_definition("Subscription", subscriptions.MEMBERS, {}, {"replay": {"type": "null"}}),
        "Replay": subscriptions.REPLAY,
        "Subscription": response_object(response_schemas(subscriptions.MEMBERS)),
        "Problem": response_object(problem, "errors"),
    }
