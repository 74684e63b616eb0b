"""The types of the six operations. Generated from the OpenAPI document by `make clients`; do not edit."""

from datetime import datetime
from typing import Any, Literal, Required, TypedDict

VERSION = "2026-11-15"


class ClientGrant(TypedDict, total=False):
    """Client grant."""

    access_token_lifetime: Required[int | None]
    exchange: Literal["delegation", "impersonation"]
    grant_type: Required[
        Literal[
            "client_credentials",
            "authorization_code",
            "refresh_token",
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ]
    ]
    id: Required[str]
    refresh_token_lifetime: Required[int | None]
    scopes: Required[list[str]]
    status: Required[Literal["active", "disabled"]]


class KeySet(TypedDict, total=False):
    """A JWK set of public keys. Several keys need a kid each."""

    keys: Required[list[dict[str, Any]]]


class ClientSecret(TypedDict, total=False):
    """Client secret."""

    created_at: Required[str]
    expires_at: Required[str | None]
    id: Required[str]
    last_used_at: Required[str | None]


class Client(TypedDict, total=False):
    """Client."""

    access_token_lifetime: int
    account: Required[str]
    application_type: Required[Literal["web", "native"]]
    claims: dict[str, Any]
    client_id: Required[str]
    client_id_issued_at: Required[int]
    client_name: str
    client_secret: str
    client_secret_expires_at: Literal[0]
    client_uri: str
    contacts: list[str]
    dpop_bound_access_tokens: Required[bool]
    grant_types: Required[
        list[
            Literal[
                "client_credentials",
                "authorization_code",
                "refresh_token",
                "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ]
        ]
    ]
    grants: Required[list[ClientGrant]]
    id_token_claims: Required[bool]
    id_token_signed_response_alg: Required[Literal["RS256", "ES256", "EdDSA"]]
    jwks: KeySet
    jwks_uri: str
    logo_uri: str
    max_concurrent_token_requests: int
    max_tokens_per_minute: int
    metadata: dict[str, str]
    policy_uri: str
    redirect_uris: Required[list[str]]
    refresh_token_lifetime: int
    require_nonce: Required[bool]
    require_pkce: Required[bool]
    response_types: list[Literal["code"]]
    scope: Required[str]
    secrets: list[ClientSecret]
    serves: list[str]
    software_id: str
    software_version: str
    status: Required[Literal["active", "disabled"]]
    token_endpoint_auth_method: Required[
        Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]
    ]
    tos_uri: str


class ClientRegistrationGrant(TypedDict, total=False):
    """Client registration grant."""

    access_token_lifetime: int | None
    exchange: Literal["delegation", "impersonation"] | None
    grant_type: Required[
        Literal[
            "client_credentials",
            "authorization_code",
            "refresh_token",
            "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ]
    ]
    id: str | None
    refresh_token_lifetime: int | None
    scopes: Required[list[str]]
    status: Literal["active", "disabled"]


class ClientRegistrationRotateSecret(TypedDict, total=False):
    """Client registration rotate secret."""

    overlap: Required[int]


class ClientRegistration(TypedDict, total=False):
    """A new client. Unknown members are ignored."""

    access_token_lifetime: int | None
    application_type: Literal["web", "native"] | None
    claims: dict[str, Any] | None
    client_name: str | None
    client_uri: str | None
    contacts: list[str] | None
    dpop_bound_access_tokens: bool | None
    grant_types: (
        list[
            Literal[
                "client_credentials",
                "authorization_code",
                "refresh_token",
                "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ]
        ]
        | None
    )
    grants: list[ClientRegistrationGrant] | None
    id_token_claims: bool | None
    id_token_signed_response_alg: Literal["RS256", "ES256", "EdDSA"] | None
    jwks: KeySet | None
    jwks_uri: str | None
    logo_uri: str | None
    max_concurrent_token_requests: int | None
    max_tokens_per_minute: int | None
    metadata: dict[str, str] | None
    policy_uri: str | None
    redirect_uris: list[str] | None
    refresh_token_lifetime: int | None
    require_nonce: bool | None
    require_pkce: bool | None
    response_types: list[Literal["code"]] | None
    rotate_secret: bool | ClientRegistrationRotateSecret | None
    scope: str | None
    serves: list[str] | None
    software_id: str | None
    software_version: str | None
    status: Literal["active", "disabled"] | None
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"] | None
    tos_uri: str | None


class ClientRedefinition(TypedDict, total=False):
    """Changes the members sent of a client of the account. With client_id alone, reads the client."""

    access_token_lifetime: int | None
    application_type: Literal["web", "native"] | None
    claims: dict[str, Any] | None
    client_id: Required[str]
    client_name: str | None
    client_uri: str | None
    contacts: list[str] | None
    dpop_bound_access_tokens: bool | None
    grant_types: (
        list[
            Literal[
                "client_credentials",
                "authorization_code",
                "refresh_token",
                "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ]
        ]
        | None
    )
    grants: list[ClientRegistrationGrant] | None
    id_token_claims: bool | None
    id_token_signed_response_alg: Literal["RS256", "ES256", "EdDSA"] | None
    jwks: KeySet | None
    jwks_uri: str | None
    logo_uri: str | None
    max_concurrent_token_requests: int | None
    max_tokens_per_minute: int | None
    metadata: dict[str, str] | None
    policy_uri: str | None
    redirect_uris: list[str] | None
    refresh_token_lifetime: int | None
    require_nonce: bool | None
    require_pkce: bool | None
    response_types: list[Literal["code"]] | None
    rotate_secret: bool | ClientRegistrationRotateSecret | None
    scope: str | None
    serves: list[str] | None
    software_id: str | None
    software_version: str | None
    status: Literal["active", "disabled"] | None
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"] | None
    tos_uri: str | None


ClientDefinition = ClientRegistration | ClientRedefinition


class DeliveryAttemptTimings(TypedDict, total=False):
    """Time since the start, for each phase reached."""

    connect_ms: float
    dns_ms: float
    first_byte_ms: float
    tls_ms: float


DeliveryAttemptWaited = TypedDict(
    "DeliveryAttemptWaited",
    {
        "for": Required[Literal["plan", "rate_limit", "retry_after", "window", "turn"]],
        "ms": Required[int],
    },
    total=False,
)


class DeliveryAttempt(TypedDict, total=False):
    """Delivery attempt."""

    because: Required[
        Literal[
            "event", "schedule", "retry_after", "interrupted", "connection_closed", "released", "shortage", "operator"
        ]
        | None
    ]
    detail: Required[str]
    duration_ms: Required[float | None]
    ended_at: Required[str | None]
    failure: Required[
        Literal["dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect"] | None
    ]
    number: Required[int]
    outcome: Required[Literal["succeeded", "failed", "interrupted", "not_sent"] | None]
    planned_at: Required[str]
    remote_ip: Required[str | None]
    response: str
    response_code: Required[int | None]
    retry_after: str
    signed_with: Required[list[str]]
    started_at: Required[str]
    timings: Required[DeliveryAttemptTimings]
    url: Required[str]
    waited: Required[DeliveryAttemptWaited]
    worker: Required[str]


class DeliveryEndpoint(TypedDict, total=False):
    """Delivery endpoint."""

    id: Required[str]
    url: Required[str]


class DeliveryEvent(TypedDict, total=False):
    """Delivery event."""

    at: Required[str]
    id: Required[str]
    type: Required[str]


class DeliveryRetriesPlan(TypedDict, total=False):
    """Delivery retries plan."""

    at: Required[str]
    because: Required[
        Literal[
            "event", "schedule", "retry_after", "interrupted", "connection_closed", "released", "shortage", "operator"
        ]
    ]
    number: Required[int]


class DeliveryRetries(TypedDict, total=False):
    """Delivery retries."""

    made: Required[int]
    next_at: Required[str | None]
    plan: Required[list[DeliveryRetriesPlan]]
    remaining: Required[int]


class Delivery(TypedDict, total=False):
    """One event for one subscription, with every attempt to deliver it."""

    account: Required[str]
    attempts: Required[list[DeliveryAttempt]]
    created_at: Required[str]
    ended_at: Required[str | None]
    ended_reason: Required[
        Literal[
            "delivered",
            "attempts_exhausted",
            "endpoint_gone",
            "held_too_long",
            "endpoint_removed",
            "cancelled_by_operator",
        ]
        | None
    ]
    endpoint: Required[DeliveryEndpoint]
    event: Required[DeliveryEvent]
    id: Required[str]
    payload: Any
    retries: Required[DeliveryRetries]
    status: Required[Literal["pending", "held", "in_flight", "succeeded", "failed", "cancelled"]]
    subscription_id: Required[str]
    trigger: Required[Literal["event", "replay", "retry"]]


class DeliveryPage(TypedDict, total=False):
    """Delivery page."""

    data: Required[list[Delivery]]
    next_cursor: Required[str | None]


DeliverySummaryDataAttempts = TypedDict(
    "DeliverySummaryDataAttempts",
    {
        "1xx": Required[int],
        "2xx": Required[int],
        "3xx": Required[int],
        "4xx": Required[int],
        "5xx": Required[int],
        "interrupted": Required[int],
        "none": Required[int],
        "not_sent": Required[int],
    },
    total=False,
)


class DeliverySummaryDataDeliveriesEnded(TypedDict, total=False):
    """Delivery summary data deliveries ended."""

    attempts_exhausted: Required[int]
    cancelled_by_operator: Required[int]
    delivered: Required[int]
    endpoint_gone: Required[int]
    endpoint_removed: Required[int]
    held_too_long: Required[int]


class DeliverySummaryDataDeliveries(TypedDict, total=False):
    """Delivery summary data deliveries."""

    ended: Required[DeliverySummaryDataDeliveriesEnded]
    made: Required[int]


class DeliverySummaryDataDurationMs(TypedDict, total=False):
    """Percentiles of the duration of attempts with a response."""

    p50: Required[float | None]
    p95: Required[float | None]
    p99: Required[float | None]


class DeliverySummaryData(TypedDict, total=False):
    """Delivery summary data."""

    attempt_success_ratio: Required[float | None]
    attempts: Required[DeliverySummaryDataAttempts]
    deliveries: Required[DeliverySummaryDataDeliveries]
    duration_ms: Required[DeliverySummaryDataDurationMs]
    start: Required[str]
    success_ratio: Required[float | None]


class DeliverySummaryNow(TypedDict, total=False):
    """Delivery summary now."""

    counted_to: Required[int]
    held: Required[int]
    in_flight: Required[int]
    oldest_pending_at: Required[str | None]
    pending: Required[int]


DeliverySummaryTotalAttempts = TypedDict(
    "DeliverySummaryTotalAttempts",
    {
        "1xx": Required[int],
        "2xx": Required[int],
        "3xx": Required[int],
        "4xx": Required[int],
        "5xx": Required[int],
        "interrupted": Required[int],
        "none": Required[int],
        "not_sent": Required[int],
    },
    total=False,
)


class DeliverySummaryTotalDeliveriesEnded(TypedDict, total=False):
    """Delivery summary total deliveries ended."""

    attempts_exhausted: Required[int]
    cancelled_by_operator: Required[int]
    delivered: Required[int]
    endpoint_gone: Required[int]
    endpoint_removed: Required[int]
    held_too_long: Required[int]


class DeliverySummaryTotalDeliveries(TypedDict, total=False):
    """Delivery summary total deliveries."""

    ended: Required[DeliverySummaryTotalDeliveriesEnded]
    made: Required[int]


class DeliverySummaryTotalDurationMs(TypedDict, total=False):
    """Percentiles of the duration of attempts with a response."""

    p50: Required[float | None]
    p95: Required[float | None]
    p99: Required[float | None]


class DeliverySummaryTotal(TypedDict, total=False):
    """Delivery summary total."""

    attempt_success_ratio: Required[float | None]
    attempts: Required[DeliverySummaryTotalAttempts]
    deliveries: Required[DeliverySummaryTotalDeliveries]
    duration_ms: Required[DeliverySummaryTotalDurationMs]
    success_ratio: Required[float | None]


class DeliverySummary(TypedDict, total=False):
    """Delivery summary."""

    data: Required[list[DeliverySummaryData]]
    now: Required[DeliverySummaryNow]
    total: Required[DeliverySummaryTotal]


class EndpointHealth(TypedDict, total=False):
    """Endpoint health."""

    consecutive_failures: Required[int]
    failing_since: Required[str | None]
    retry_after_until: Required[str | None]
    will_be_disabled_at: Required[str | None]


class EndpointSecret(TypedDict, total=False):
    """Endpoint secret."""

    created_at: Required[str]
    expires_at: Required[str | None]
    id: Required[str]
    public: str


class Endpoint(TypedDict, total=False):
    """Endpoint."""

    account: Required[str]
    created_at: Required[str]
    description: Required[str]
    disabled_at: Required[str | None]
    disabled_reason: Required[Literal["requested", "gone", "failing", "operator"] | None]
    dropped_headers: list[str]
    format: Required[Literal["standard", "cloudevents"]]
    headers: Required[dict[str, str]]
    health: Required[EndpointHealth]
    held: Required[int]
    id: Required[str]
    max_in_flight: Required[int]
    max_retry_after: Required[int]
    metadata: Required[dict[str, str]]
    rate_limit: Required[int | None]
    retry_schedule: Required[list[int] | None]
    secret: str
    secrets: Required[list[EndpointSecret]]
    signing: Required[Literal["v1", "v1a"]]
    status: Required[Literal["active", "disabled", "removed"]]
    timeout: Required[int]
    updated_at: Required[str]
    url: Required[str]


class EndpointPageDataLastDelivery(TypedDict, total=False):
    """The newest delivery, if it is at most 7 days old."""

    created_at: Required[str]
    ended_at: Required[str | None]
    ended_reason: Required[
        Literal[
            "delivered",
            "attempts_exhausted",
            "endpoint_gone",
            "held_too_long",
            "endpoint_removed",
            "cancelled_by_operator",
        ]
        | None
    ]
    failure: Required[
        Literal["dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect"] | None
    ]
    id: Required[str]
    response_code: Required[int | None]


EndpointPageDataRecentAttempts = TypedDict(
    "EndpointPageDataRecentAttempts",
    {
        "1xx": Required[int],
        "2xx": Required[int],
        "3xx": Required[int],
        "4xx": Required[int],
        "5xx": Required[int],
        "interrupted": Required[int],
        "none": Required[int],
        "not_sent": Required[int],
    },
    total=False,
)


class EndpointPageDataRecentDeliveriesEnded(TypedDict, total=False):
    """Endpoint page data recent deliveries ended."""

    attempts_exhausted: Required[int]
    cancelled_by_operator: Required[int]
    delivered: Required[int]
    endpoint_gone: Required[int]
    endpoint_removed: Required[int]
    held_too_long: Required[int]


class EndpointPageDataRecentDeliveries(TypedDict, total=False):
    """Endpoint page data recent deliveries."""

    ended: Required[EndpointPageDataRecentDeliveriesEnded]
    made: Required[int]


class EndpointPageDataRecentDurationMs(TypedDict, total=False):
    """Percentiles of the duration of attempts with a response."""

    p50: Required[float | None]
    p95: Required[float | None]
    p99: Required[float | None]


class EndpointPageDataRecent(TypedDict, total=False):
    """The counts of the last 5 minutes."""

    attempt_success_ratio: Required[float | None]
    attempts: Required[EndpointPageDataRecentAttempts]
    attempts_per_second: Required[float]
    deliveries: Required[EndpointPageDataRecentDeliveries]
    duration_ms: Required[EndpointPageDataRecentDurationMs]
    since: Required[str]
    success_ratio: Required[float | None]


SubscriptionReplay = TypedDict(
    "SubscriptionReplay",
    {
        "event_ids": list[str],
        "examined": Required[int],
        "from": str,
        "id": Required[str],
        "made": Required[int],
        "only": Literal["failed"],
        "state": Required[Literal["running", "ended"]],
        "until": str,
    },
    total=False,
)


class Subscription(TypedDict, total=False):
    """Subscription."""

    account: Required[str]
    created_at: Required[str]
    description: Required[str]
    endpoint_id: Required[str]
    events: Required[list[str]]
    filter: Required[dict[str, str | float | bool | None]]
    id: Required[str]
    replay: Required[SubscriptionReplay]
    status: Required[Literal["active", "disabled", "removed"]]
    updated_at: Required[str]


class EndpointPageData(Endpoint, total=False):
    """Endpoint page data."""

    condition: Required[Literal["healthy", "degraded", "failing", "disabled"]]
    last_delivery: Required[EndpointPageDataLastDelivery]
    oldest_due_at: Required[str | None]
    recent: Required[EndpointPageDataRecent]
    subscriptions: Required[list[Subscription]]
    waiting: Required[int]


class EndpointPage(TypedDict, total=False):
    """Endpoint page."""

    data: Required[list[EndpointPageData]]
    next_cursor: Required[str | None]


Deliveries = DeliveryPage | DeliverySummary | EndpointPage


class EndpointCreationRotateSecret(TypedDict, total=False):
    """Endpoint creation rotate secret."""

    overlap: Required[int]


class EndpointCreation(TypedDict, total=False):
    """A new endpoint."""

    description: str | None
    format: Literal["standard", "cloudevents"] | None
    headers: dict[str, str] | None
    max_in_flight: int | None
    max_retry_after: int | None
    metadata: dict[str, str] | None
    rate_limit: int | None
    retry_schedule: list[int] | None
    rotate_secret: bool | EndpointCreationRotateSecret | None
    secret: str | None
    signing: Literal["v1", "v1a"] | None
    status: Literal["active", "disabled"] | None
    timeout: int | None
    url: Required[str]


class EndpointRedefinitionRotateSecret(TypedDict, total=False):
    """Endpoint redefinition rotate secret."""

    overlap: Required[int]


class EndpointRedefinition(TypedDict, total=False):
    """Changes the members sent of an endpoint of the account. With id alone, reads the endpoint."""

    description: str | None
    format: Literal["standard", "cloudevents"] | None
    headers: dict[str, str] | None
    id: Required[str]
    max_in_flight: int | None
    max_retry_after: int | None
    metadata: dict[str, str] | None
    rate_limit: int | None
    retry_schedule: list[int] | None
    rotate_secret: bool | EndpointRedefinitionRotateSecret | None
    signing: Literal["v1", "v1a"] | None
    status: Literal["active", "disabled", "removed"] | None
    timeout: int | None
    url: str


EndpointDefinition = EndpointCreation | EndpointRedefinition


class OAuthError(TypedDict, total=False):
    """O auth error."""

    error: Required[str]
    error_description: Required[str]
    error_uri: str


class ProblemError(TypedDict, total=False):
    """Problem error."""

    detail: Required[str]
    pointer: Required[str]


class Problem(TypedDict, total=False):
    """Problem."""

    code: Required[str]
    detail: Required[str]
    errors: list[ProblemError]
    status: Required[int]
    title: Required[str]
    type: Required[str]


Replay = TypedDict(
    "Replay",
    {
        "event_ids": list[str] | None,
        "from": str | None,
        "only": Literal["failed"] | None,
        "until": str | None,
    },
    total=False,
)


class Scope(TypedDict, total=False):
    """Scope."""

    account: Required[str]
    claims: Required[list[str]]
    created_at: Required[str]
    description: Required[str]
    max_lifetime: Required[int | None]
    name: Required[str]
    resource: Required[str]
    status: Required[Literal["active", "retired"]]
    updated_at: Required[str]


class ScopeDefinition(TypedDict, total=False):
    """Scope definition."""

    claims: list[str] | None
    description: str | None
    max_lifetime: int | None
    name: Required[str]
    redefine: bool
    resource: str | None
    status: Literal["active", "retired"] | None


class SubscriptionCreation(TypedDict, total=False):
    """A new subscription."""

    description: str | None
    endpoint_id: Required[str]
    events: Required[list[str]]
    filter: dict[str, str | float | bool | None] | None
    replay: Replay | None
    status: Literal["active", "disabled"] | None


class SubscriptionRedefinition(TypedDict, total=False):
    """Changes the members sent of a subscription of the account. With id alone, reads the subscription."""

    description: str | None
    endpoint_id: str
    events: list[str]
    filter: dict[str, str | float | bool | None] | None
    id: Required[str]
    replay: Replay | None
    status: Literal["active", "disabled", "removed"] | None


SubscriptionDefinition = SubscriptionCreation | SubscriptionRedefinition


class Token(TypedDict, total=False):
    """Token."""

    access_token: Required[str]
    expires_in: Required[int]
    id_token: str
    issued_token_type: Literal["urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt"]
    refresh_token: str
    scope: Required[str]
    token_type: Required[Literal["Bearer", "DPoP"]]


class TokenRequestClientCredentials(TypedDict, total=False):
    """Token request client credentials."""

    client_assertion: str
    client_assertion_type: str
    client_id: str
    client_secret: str
    grant_type: Required[Literal["client_credentials"]]
    resource: str
    scope: Required[str]


class TokenRequestAuthorizationCode(TypedDict, total=False):
    """Token request authorization code."""

    client_assertion: str
    client_assertion_type: str
    client_id: str
    client_secret: str
    code: Required[str]
    code_verifier: str
    grant_type: Required[Literal["authorization_code"]]
    redirect_uri: Required[str]
    resource: str
    scope: str


class TokenRequestRefreshToken(TypedDict, total=False):
    """Token request refresh token."""

    client_assertion: str
    client_assertion_type: str
    client_id: str
    client_secret: str
    grant_type: Required[Literal["refresh_token"]]
    refresh_token: Required[str]
    resource: str
    scope: str


class TokenRequestJwtBearer(TypedDict, total=False):
    """Token request jwt bearer."""

    assertion: Required[str]
    client_assertion: str
    client_assertion_type: str
    client_id: str
    client_secret: str
    grant_type: Required[Literal["urn:ietf:params:oauth:grant-type:jwt-bearer"]]
    resource: str
    scope: Required[str]


class TokenRequestTokenExchange(TypedDict, total=False):
    """Token request token exchange."""

    audience: str
    client_assertion: str
    client_assertion_type: str
    client_id: str
    client_secret: str
    grant_type: Required[Literal["urn:ietf:params:oauth:grant-type:token-exchange"]]
    requested_token_type: Literal[
        "urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt"
    ]
    resource: str
    scope: Required[str]
    subject_token: Required[str]
    subject_token_type: Required[
        Literal["urn:ietf:params:oauth:token-type:access_token", "urn:ietf:params:oauth:token-type:jwt"]
    ]


TokenRequest = (
    TokenRequestClientCredentials
    | TokenRequestAuthorizationCode
    | TokenRequestRefreshToken
    | TokenRequestJwtBearer
    | TokenRequestTokenExchange
)


class DeliveryQuery(TypedDict, total=False):
    """Parameters of GET /webhooks/deliveries."""

    id: str
    endpoint_id: str
    subscription_id: str
    event_id: str
    event_type: str
    status: Literal["pending", "held", "in_flight", "succeeded", "failed", "cancelled"]
    response_code: str
    failure: Literal["dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect"]
    created_after: str | datetime
    created_before: str | datetime
    due_before: str | datetime
    limit: int
    cursor: str
    order: Literal["newest", "oldest"]
    include: Literal["payload", "responses", "payload,responses", "responses,payload"]
    view: Literal["summary", "endpoints"]
    interval: Literal["minute", "hour", "day"]


class DeliveryFilters(TypedDict, total=False):
    """Parameters of GET /webhooks/deliveries."""

    id: str
    endpoint_id: str
    subscription_id: str
    event_id: str
    event_type: str
    status: Literal["pending", "held", "in_flight", "succeeded", "failed", "cancelled"]
    response_code: str
    failure: Literal["dns", "connect", "tls", "send", "first_byte", "body", "timeout", "blocked_target", "redirect"]
    created_after: str | datetime
    created_before: str | datetime
    due_before: str | datetime
    limit: int
    order: Literal["newest", "oldest"]
    include: Literal["payload", "responses", "payload,responses", "responses,payload"]
