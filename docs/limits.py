"""All limits with their values, from the constants of the code; `docs/generate.py` writes the tables."""

from datetime import timedelta

from gatepost import accounts, settings
from gatepost.core import jose, secret_rotation, strict_json
from gatepost.egress import address_guard, jwks_cache, remote_jwks, transfer
from gatepost.ingest import http
from gatepost.ledger import entries, publishable
from gatepost.oauth import client_authentication, clients, dpop, provenance, refusals, signing_keys
from gatepost.oauth.authorize import flow, handoff, request
from gatepost.oauth.grants import jwt_bearer
from gatepost.store import work
from gatepost.web import body, listen, requests
from gatepost.webhooks import endpoints, publish, summary, tallies
from gatepost.webhooks import listing as pages
from gatepost.webhooks import listing_query as listing
from gatepost.webhooks.claim import LEASE

Row = tuple[str, str, str]
_BODY, _SERVICE = body.BodyLimits(), settings.Settings()
_REFUSED = "refused"
_WRONG = "400 `invalid_request`"
_OLDEST = "the oldest is discarded"
_LARGE = "413 `request_too_large`"


def _size(count: int) -> str:
    return f"{count // 1024**2} MiB" if count % 1024**2 == 0 else f"{count // 1024} KiB"


def _time(length: timedelta | float) -> str:
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0 and (unit != "d" or seconds > size):
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _setting(name: str, words: str, beyond: str) -> Row:
    """A limit that is an account setting, with its default and bounds."""
    setting = accounts.SETTINGS[name]
    default = setting.default or "no limit" if name.startswith("max_") else _time(setting.default)
    return words, f"{default} ([`{name}`](settings.md#account-settings): {setting.bounds})", beyond


def _overlap(noun: str, usual: timedelta, most: timedelta) -> Row:
    return (
        f"overlap of two secrets of one {noun} during a rotation",
        f"{_time(usual)}, at most {_time(most)}",
        "the old secret expires",
    )


LIMITS: dict[str, list[Row]] = {
    "requests": [
        ("body of a request", _size(body.MAX_BODY), _LARGE),
        ("body of `POST /events`", f"{_size(http.MAX_BODY)}, {http.MAX_BATCH} events", _LARGE),
        ("deliveries of the events in one request, if there are several", f"{publish.MAX_BATCH_DELIVERIES}", _LARGE),
        (
            "body that is too large, but read to its end and discarded",
            _size(body.MAX_DISCARDED),
            "413 `request_too_large`, and the connection is closed",
        ),
        (
            "time for a body to arrive",
            f"{_time(_BODY.patience)} plus 1 s for each {_size(_BODY.rate)} received, at most {_time(_BODY.seconds)}",
            "408 `request_timeout`, and the connection is closed",
        ),
        (
            "time for the header of a request, also of the next request on a kept connection",
            _time(listen.HEADER_TIMEOUT),
            "the connection is closed",
        ),
        (
            "requests in progress from one address, in one process",
            f"{_SERVICE.max_requests_per_address} ([`max_requests_per_address`](settings.md#service-settings))",
            "429 `too_many_requests`; a trusted proxy itself is not limited",
        ),
        ("open connections of one process", f"{listen.MAX_CONNECTIONS}", "further connections wait"),
        ("parameters of a form or a query", f"{requests.MAX_PARAMETERS}", _WRONG),
        ("nesting of JSON", f"{strict_json._MAX_DEPTH} levels", _WRONG),
        (
            "a JWT: token, assertion, proof",
            _size(jose.MAX_BYTES),
            "refused; an access token that would be larger is not issued: 400 `invalid_scope`",
        ),
        ("`Idempotency-Key`", "255 characters, stored for 24 h", _WRONG),
        (
            "failed authentications of one client from one address",
            f"{refusals.LIMIT} in {_time(refusals.WINDOW)}",
            "429 `too_many_failures` for further failures of that pair; correct credentials are accepted",
        ),
        (
            "individually recorded refusals of one public client from one address",
            f"{refusals.LIMIT} in {_time(refusals.WINDOW)}",
            "further refusals of that minute are one entry with a `count`; the responses are the same",
        ),
        ("a value in the ledger entry of a refusal", f"{entries.MAX_UNVALIDATED} characters", "the value is truncated"),
        ("wait for the store", _time(work.PATIENCE), "503 `temporarily_unavailable`"),
        (
            "wait for a turn beside other accounts, before that",
            _time(work.PATIENCE),
            "503 `temporarily_unavailable`",
        ),
    ],
    "accounts": [
        _setting("max_clients", "clients", "409 `limit_reached`"),
        _setting("max_scopes", "scopes", "409 `limit_reached`"),
        _setting("max_endpoints", "endpoints, without removed ones", "409 `limit_reached`"),
        _setting("max_subscriptions", "subscriptions, without removed ones", "409 `limit_reached`"),
        _setting("max_tokens_per_minute", "tokens in a minute, in one web process", "429 `quota_exceeded`"),
        _setting(
            "max_concurrent_token_requests", "token requests in progress, in one web process", "429 `quota_exceeded`"
        ),
        _setting("retention", "retention of deliveries, attempts and platform events", "they are pruned"),
        _setting("audit_retention", "retention of Gatepost's own entries", "they are pruned"),
        _setting("hold_limit", "time for which a delivery is held", "it ends as `held_too_long`"),
    ],
    "tokens": [
        _setting("access_token_lifetime", "lifetime of an access token", "it expires"),
        _setting("id_token_lifetime", "lifetime of an ID token", "it expires"),
        _setting("refresh_token_lifetime", "lifetime of an unused refresh token", "`invalid_grant`"),
        _setting("refresh_token_max_age", "age of a token family", "`invalid_grant`"),
        _setting("refresh_grace", "repeated use of the previous refresh token", "reuse: the token family ends"),
        _overlap("client", secret_rotation.OVERLAP, clients.MAX_OVERLAP),
        ("keys in a client's `jwks`", "20", "400 `invalid_client_metadata`"),
        ("age of a client assertion since `iat`", _time(client_authentication.ASSERTION_LIFE), "401 `invalid_client`"),
        ("`iat` and `nbf` of a received JWT ahead of Gatepost's clock", _time(jose.CLOCK_SKEW), _REFUSED),
        ("lifetime of an assertion for jwt-bearer", _time(jwt_bearer.MAX_LIFETIME), "`invalid_grant`"),
        ("exchanges in a chain of tokens", f"{provenance.LONGEST_CHAIN}", "400 `invalid_request`"),
        ("lifetime of a DPoP nonce", _time(dpop.NONCE_LIFE), "`use_dpop_nonce`"),
        ("age of a DPoP proof", _time(dpop.MAX_AGE), "`invalid_dpop_proof`"),
        ("cache time of a remote key set", _time(jwks_cache.FRESH), "the key set is fetched again"),
        ("the same while its URL is unavailable", _time(jwks_cache.STALE), _REFUSED),
        ("fetching a remote key set", f"{_size(remote_jwks.MAX_BYTES)}, {_time(remote_jwks.TIMEOUT)}", _REFUSED),
        ("cache time of Gatepost's key set", _time(signing_keys.JWKS_MAX_AGE), "verifiers fetch it again"),
    ],
    "signing in": [
        *((f"`{name}`", f"{most} characters", "`invalid_request`") for name, most in request.MAX_LENGTHS.items()),
        ("time from a pushed request until it is opened", _time(flow.PUSHED_LIFE), _WRONG),
        ("time from an interaction to its handoff", _time(handoff.INTERACTION_LIFE), "400; restart the authorization"),
        (
            "size of an interaction",
            _size(handoff.MAX_INTERACTION),
            "the longest descriptions of scopes are left out; if that is not enough, `invalid_request`",
        ),
        ("size of a handoff", _size(handoff.MAX_HANDOFF), _WRONG),
        ("lifetime of a handoff", _time(handoff.HANDOFF_LIFE), _WRONG),
        ("open interactions of one browser", f"{flow.MAX_PER_BROWSER}", _OLDEST),
        (
            "open interactions of one client and address",
            f"{flow.MAX_FIRST_VISITS} for browsers without the cookie, {flow.MAX_RETURNING} for browsers with it",
            _OLDEST,
        ),
        (
            "open pushed requests of one client and address",
            f"{flow.MAX_PUSHED}, or {flow.MAX_PUSHED_AUTHENTICATED} for a client that authenticates",
            _OLDEST,
        ),
        _setting("authorization_code_lifetime", "lifetime of an authorization code", "`invalid_grant`"),
        ("the same under `fapi2`", f"at most {_time(flow.STRICT_CODE_LIFE)}", "`invalid_grant`"),
    ],
    "webhooks": [
        ("`data` of an event", _size(entries.MAX_DATA), _LARGE),
        ("message from NATS or Kafka, and `data` in the outbox, as it is written", _size(publish.MAX_BODY), _REFUSED),
        ("name of an event type", f"{publishable._LONGEST_TYPE} characters", _WRONG),
        ("event ID of a publisher", f"{publishable._LONGEST_ID} characters", _WRONG),
        ("URL of an endpoint", f"{address_guard.MAX_URL} characters", _WRONG),
        ("one attempt, from start to the last byte", "15 s, at most 30 s (`timeout`)", "the attempt fails: `timeout`"),
        (
            "response body",
            f"{_size(transfer.MAX_READ)} read, {_size(transfer.MAX_STORED)} stored",
            "the rest is ignored",
        ),
        (
            "`Retry-After` that is honored",
            f"{_time(endpoints.MAX_RETRY_AFTER)}, at most {_time(endpoints.RETRY_AFTER_BOUNDS[1])} (`max_retry_after`)",
            "the maximum applies",
        ),
        ("lease of an attempt", f"the endpoint's `timeout` plus {_time(LEASE)}", "another worker can take over"),
        ("failures without a success", _time(endpoints.DISABLE_AFTER), "the endpoint is disabled"),
        _overlap("endpoint", secret_rotation.OVERLAP, endpoints.MAX_OVERLAP),
        ("deliveries on a page", f"{pages.DEFAULT_LIMIT}, at most {pages.MAX_LIMIT}", _WRONG),
        ("records that a page examines", f"{listing.MAX_EXAMINED}", "continue with `next_cursor`"),
        ("payloads on a page", _size(pages.MAX_PAYLOAD), "continue with `next_cursor`"),
        ("intervals of a summary", f"{summary.MAX_INTERVALS}", _WRONG),
        ("range of a summary by the minute", f"{_time(tallies.MINUTES_KEPT)}", _WRONG),
    ],
}  # fmt: skip
