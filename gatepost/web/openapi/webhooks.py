"""Schemas of the webhook area: endpoints and subscriptions. The members come from the tables of the resources."""

from gatepost.core.json_schema import Json, array, nullable, one_of, ref, request_object, response_object, string
from gatepost.core.members import request_schemas, response_schemas
from gatepost.webhooks import endpoints, subscriptions

_NO_ROTATION: Json = {"rotate_secret": {"enum": [False, None]}}
_STATUS_OF_NEW: Json = {"status": nullable(one_of(["active", "disabled"]))}


def _endpoint_creation() -> Json:
    """With `secret`, a new secret is neither needed nor possible: see endpoint_rules."""
    members = request_schemas(endpoints.MEMBERS, "create") | _STATUS_OF_NEW
    given = {"required": ["secret"], "properties": {"secret": {"type": "string"}}}
    alone = {"properties": _NO_ROTATION | {"signing": {"enum": ["v1", None]}}}
    return request_object(members, "url", description="A new endpoint.") | {"if": given, "then": alone}


def _endpoint_redefinition() -> Json:
    described = "Changes the members sent of an endpoint of the account. With id alone, reads the endpoint."
    members = request_schemas(endpoints.MEMBERS, "change")
    return request_object(members, "id", description=described) | _if_removed(_NO_ROTATION)


def _subscription_creation() -> Json:
    members = request_schemas(subscriptions.MEMBERS, "create") | _STATUS_OF_NEW
    return request_object(members, "endpoint_id", "events", description="A new subscription.")


def _subscription_redefinition() -> Json:
    described = "Changes the members sent of a subscription of the account. With id alone, reads the subscription."
    members = request_schemas(subscriptions.MEMBERS, "change")
    return request_object(members, "id", description=described) | _if_removed({"replay": {"type": "null"}})


def _if_removed(then: Json) -> Json:
    """What holds for the other members if the request removes the resource."""
    removed = {"required": ["status"], "properties": {"status": {"const": "removed"}}}
    return {"if": removed, "then": {"properties": then}}


def schemas() -> dict[str, Json]:
    """The components of the area."""
    fault = response_object({"pointer": {"type": "string", "pattern": "^/"}, "detail": string(1, 4096)})
    problem = {"type": string(1, 200), "title": string(1, 200), "detail": string(1, 4096), "code": string(1, 64)}
    problem |= {"status": {"type": "integer"}, "errors": array(fault)}
    return {
        "EndpointDefinition": {"anyOf": [ref("EndpointCreation"), ref("EndpointRedefinition")]},
        "EndpointCreation": _endpoint_creation(),
        "EndpointRedefinition": _endpoint_redefinition(),
        "Endpoint": response_object(response_schemas(endpoints.MEMBERS), *endpoints.OPTIONAL_IN_RESPONSES),
        "SubscriptionDefinition": {"anyOf": [ref("SubscriptionCreation"), ref("SubscriptionRedefinition")]},
        "SubscriptionCreation": _subscription_creation(),
        "SubscriptionRedefinition": _subscription_redefinition(),
        "Replay": subscriptions.REPLAY,
        "Subscription": response_object(response_schemas(subscriptions.MEMBERS)),
        "Problem": response_object(problem, "errors"),
    }
