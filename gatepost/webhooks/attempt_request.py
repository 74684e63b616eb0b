"""The HTTP request of an attempt: signed body and headers, ready for the sender."""

from typing import TYPE_CHECKING, NamedTuple

from gatepost.core.webhook_signature import Signer, signature
from gatepost.egress.transfer import Outgoing
from gatepost.webhooks import define_endpoint, endpoint_headers, message
from gatepost.webhooks.claim import Claim
from gatepost.webhooks.endpoints import Endpoint
from gatepost.webhooks.message import EventMessage
from gatepost.webhooks.service import Service

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

_CACHED = 5_000  # endpoints


class _Prepared(NamedTuple):
    """What all requests to one version of an endpoint have in common."""

    headers: list[str]
    signers: dict[str, Signer]
    has_traceparent: bool


class RequestBuilder:
    """Builds requests. It keeps the decrypted headers and secrets of endpoints in memory."""

    def __init__(self, service: Service, traces: "Traces | None") -> None:
        self._service = service
        self._traces = traces
        self._prepared: dict[tuple[str, object], _Prepared] = {}

    def build(self, claim: Claim) -> Outgoing:
        endpoint, attempt = claim.endpoint, claim.attempt
        prepared = self._prepare(endpoint)
        event = EventMessage(claim.account, claim.event_id, claim.type, claim.at, claim.data)
        body = message.body(event, endpoint.format)
        timestamp = attempt.started_at // 1000
        signers = [prepared.signers[secret] for secret in attempt.signed_with]
        headers = message.headers(prepared.headers, event.id, timestamp, signature(signers, event.id, timestamp, body))
        if self._traces is not None:
            parent = self._traces.start_attempt(event.id, event.type, claim.delivery_id, claim.number)
            if not prepared.has_traceparent:
                headers.append(parent)
        new_connection = claim.queued.because == "connection_closed"
        return Outgoing(claim, attempt.url, headers, body, endpoint.timeout, claim.account_name, new_connection)

    def _prepare(self, endpoint: Endpoint) -> _Prepared:
        key = (endpoint.id, endpoint.updated_at)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _CACHED:
                self._prepared.clear()
            box = self._service.keys.data
            headers = message.fixed_headers(endpoint_headers.plaintext(box, endpoint), endpoint.format)
            prepared = self._prepared[key] = _Prepared(
                headers,
                {secret.id: define_endpoint.signer(box, endpoint, secret) for secret in endpoint.secrets},
                any(header.lower().startswith("traceparent:") for header in headers),
            )
        return prepared
