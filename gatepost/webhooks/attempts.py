"""The attempts of a worker: sends them, and keeps those that have ended until they are settled."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import certifi

from gatepost.core.logging import AttemptLine, log, log_attempts
from gatepost.core.metrics import SHORTAGES, attempt_counter
from gatepost.egress.sender import Sender
from gatepost.egress.senders import Senders
from gatepost.egress.shortage import AUTHORITIES, describe
from gatepost.egress.transfer import SendResult
from gatepost.webhooks import decide, settle
from gatepost.webhooks.attempt_request import RequestBuilder
from gatepost.webhooks.claim import Claim
from gatepost.webhooks.schedule import Schedule
from gatepost.webhooks.service import Service
from gatepost.webhooks.settle import FinishedAttempt, Result

if TYPE_CHECKING:
    from gatepost.core.tracing import Traces

_SHORTAGE_PAUSE = 1.0  # seconds


class Attempts:
    """Sends attempts. `finished` has a queue for each concurrent cycle. All attempts to an endpoint are in one."""

    def __init__(
        self, service: Service, worker: str, schedule: Schedule, *, queues: int, now: Callable[[], int],
        make_sender: type[Sender], proxy: str, ca: str, traces: "Traces | None",
    ) -> None:  # fmt: skip
        self.finished: list[list[FinishedAttempt]] = [[] for _ in range(queues)]
        self.draining = False  # nothing more is sent
        self.changed = asyncio.Event()  # an attempt has ended, or something else concerns the worker
        self.last_deadline = 0.0  # of all attempts that were begun, by the loop's clock
        self.short_until = 0.0  # no claims before this loop time: the process ran out of a resource
        self._worker = worker
        self._schedule = schedule
        self._now = now
        self._traces = traces
        self._ca = ca or certifi.where()
        self._requests = RequestBuilder(service, traces)
        self._sender = Senders(
            service.policy_for, self._sent, make=make_sender, refused=_log_refused, proxy=proxy, ca=self._ca
        )
        self._log_lines: list[AttemptLine] = []
        self._loop = asyncio.get_running_loop()

    @property
    def in_flight(self) -> int:
        return self._sender.in_flight

    def abandon(self) -> int:
        """Cancel the attempts in flight. Returns how many there were."""
        return len(self._sender.abandon())

    def close(self) -> None:
        self._sender.close()

    def write_log(self) -> None:
        """Write the log lines of the attempts that have ended."""
        lines, self._log_lines = self._log_lines, []
        log_attempts(lines)

    def send(self, claim: Claim) -> None:
        """Send the attempt of a claim, or finish it as not sent if the worker stops."""
        if self.draining:
            self._not_sent(Result(claim, self._now(), detail="not sent: the service was stopping", sent=False))
            return
        if claim.is_lost:
            log.error("an event is missing in the ledger", delivery=claim.delivery_id)
            self._fail(claim, "the event is missing in the ledger, so there is nothing to send")
            return
        try:
            request = self._requests.build(claim)
            self.last_deadline = max(self.last_deadline, self._loop.time() + request.timeout)
            self._sender.start(request)
        except Exception:  # noqa: BLE001 (one request that cannot be built must not stop the others)
            log.exception("an attempt could not be prepared", delivery=claim.delivery_id)
            self._fail(claim, "the request could not be built: an internal error, or a secret that was altered")

    def _fail(self, claim: Claim, detail: str) -> None:
        self._sent([SendResult(claim, None, "send", detail, None, {}, 0.0, None, b"")])

    def _sent(self, results: list[SendResult]) -> None:
        now = self._now()
        for sent in results:
            if sent.shortage:
                self._pause_for_shortage(sent)
                continue
            result = Result(sent.key, now, *sent[1:])
            finished = settle.finish(result, self._worker)
            if finished.succeeded:
                overloaded = False
            else:
                if result.retry_after is not None:  # postpone other deliveries before this one is settled
                    self._postpone(result)
                overloaded = decide.is_overloaded(sent.code, sent.failure) and result.concerns_health
            self._finish(finished, overloaded=overloaded, now=now)
            line = _log_line(finished, self._worker)
            if self._traces is not None:
                line.trace = self._traces.end_attempt(line, result.timings)
            self._log_lines.append(line)

    def _pause_for_shortage(self, sent: SendResult) -> None:
        """Finish the attempt as not sent, and let the worker claim nothing for a moment."""
        if self._loop.time() >= self.short_until:
            if sent.shortage == AUTHORITIES:
                log.error("attempts not sent: certificate authorities cannot be read", file=self._ca)
            else:
                log.error("attempts not sent: the service ran out of a resource", resource=sent.shortage)
        self.short_until = self._loop.time() + _SHORTAGE_PAUSE
        SHORTAGES.labels(sent.shortage).inc()
        detail = f"not sent: {describe(sent.shortage)}"
        self._not_sent(Result(sent.key, self._now(), detail=detail, shortage=sent.shortage, sent=False))

    def _not_sent(self, result: Result) -> None:
        attempt_counter("not_sent", "").inc()
        self._finish(settle.finish(result, self._worker), overloaded=False, now=result.ended_at)

    def _postpone(self, result: Result) -> None:
        until = decide.asked_not_before(result.attempted(), result.claim.endpoint)
        if until is not None:
            self._schedule.postpone(result.claim.endpoint_key, until)

    def _finish(self, finished: FinishedAttempt, *, overloaded: bool, now: int) -> None:
        claim = finished.result.claim
        self.queue(finished)
        self._schedule.attempt_ended(
            claim.endpoint_key, claim.queued.lane, succeeded=finished.succeeded, overloaded=overloaded, now=now
        )
        self.changed.set()

    def queue(self, finished: FinishedAttempt) -> None:
        """Queue an attempt for the next cycle."""
        self.finished[finished.result.claim.endpoint_key[1][-1] % len(self.finished)].append(finished)


def _log_line(finished: FinishedAttempt, worker: str) -> AttemptLine:
    result, claim = finished.result, finished.result.claim
    return AttemptLine(
        "info" if finished.succeeded else "warning", None, claim.account, claim.endpoint.id, claim.delivery_id,
        claim.event_id, claim.type, claim.number, finished.row.outcome, claim.attempt.waited_for,
        claim.attempt.waited_ms, worker, result.code, result.failure, result.duration_ms,
    )  # fmt: skip


def _log_refused(host: str, port: int, why: str) -> None:
    """Log a refused target for the operator. The account only learns that the host has no public address."""
    log.warning("target refused by its address", host=host, port=port, reason=why)
