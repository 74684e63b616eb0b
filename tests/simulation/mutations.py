"""Mutations of the code: each changes a few lines, and the simulation must detect every one of them.

A mutation names its file, the text that is there and the text that is put in its place. It must stand there just once:
a mutation that no longer applies fails its test instead of passing in silence.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONHASHSEED": "0"}  # with another value, the command restarts itself


class Mutation(NamedTuple):
    name: str
    file: str
    before: str
    after: str
    seed: int = 1  # of the first history: one that detects the defect early


MUTATIONS = [
    Mutation(
        "chores sleep long after a stall",
        "core/repeat.py",
        "await self._pause(pause(self._every, shorter, failed=failed, share=self._share, defects=self._defects))",
        "await self._pause(max(self._every, 20 * took))",
        seed=8,
    ),
    Mutation(
        "a later success lifts Retry-After",
        "webhooks/health_rows.sql",
        "UPDATE health SET failures = 0, failing_since = NULL",
        "UPDATE health SET failures = 0, failing_since = NULL, not_before = 0",
        seed=6,
    ),
    Mutation(
        "a redefinition as active keeps Retry-After",
        "webhooks/health_rows.sql",
        "UPDATE health SET not_before = :now WHERE",
        "UPDATE health SET failures = failures WHERE",
    ),
    Mutation(
        "attempts are sent before they are on record",
        "webhooks/claim.py",
        "        queue_rows.claim(tx, rows)\n",
        "        queue_rows.claim(tx, rows[1:])\n",
        seed=5,
    ),
    Mutation(
        "a dead worker's attempts leave no record",
        "webhooks/endings.py",
        "    delivery_rows.add_attempts(tx, closed)\n",
        "",
    ),
    Mutation(
        "claims whose answer was lost are forgotten",
        "webhooks/worker.py",
        "            if turns:\n                self._open_claims.commit_failed()\n",
        "",
        seed=2,
    ),
    Mutation(
        "an entry loses one of its deliveries",
        "webhooks/fanout.py",
        "    return delivery_rows.create(tx, created)\n",
        "    delivery_rows.create(tx, created[: max(1, len(created) - 1)])\n"
        "    return [delivery.id for delivery in created]\n",
    ),
    Mutation(
        "a subscription is not matched",
        "webhooks/fanout.py",
        'if subscription.status == "active" and matches_type(subscription.events, type_)\n    )',
        'if subscription.status == "active" and matches_type(subscription.events, type_)\n    )[:2]',
    ),
    Mutation(
        "an id can be published twice",
        "webhooks/publish.py",
        "if event.name and not published_ids.add(tx, account.id, event.name, raw, event.body):",
        "if event.name and not published_ids.add(tx, account.id, raw, raw, event.body):",
        seed=2,
    ),
    Mutation(
        "a token without an entry",
        "store/sqlite.py",
        "            pending.add(work.precomputed.pending)\n",
        "            pending.add(work.precomputed.pending) if not work.precomputed.pending.size else None\n",
    ),
    Mutation(
        "reuse does not end the family",
        "oauth/grants/refresh_token.py",
        'if revocation.end_family(tx, account, family.id, "reused", origin, client=family.client):',
        "if False:",
        seed=2,
    ),
    Mutation(
        "an ended family still refreshes",
        "oauth/refresh_tokens.py",
        "    if not family.is_active(at):\n        return Inactive()\n",
        "",
    ),
    Mutation(
        "an entry is left out of its seal",
        "ledger/sealing.py",
        "chain.next_seal(key, account, current, entries, ",
        "chain.next_seal(key, account, current, entries[1:] or entries, ",
    ),
    Mutation(
        "pruning takes entries before their time",
        "ledger/retention.py",
        "return ids.lowest_at(clock.milliseconds(tx.at - timedelta(days=days)))",
        "return ids.lowest_at(clock.milliseconds(tx.at - timedelta(days=days - 1)))",
    ),
    Mutation(
        "disabled endpoints are delivered to",
        "webhooks/claim.py",
        'and account.active and endpoint.status == "active":',
        "and account.active:",
    ),
    Mutation(
        "other processes keep the old definition",
        "webhooks/endpoint_rows.py",
        '    tx.change(f"endpoint {endpoint.account} {endpoint.id}")\n',
        "",
        seed=5,
    ),
    Mutation(
        "a restarted worker does not find retries",
        "webhooks/worker.py",
        "if self._peers.owns(lane[:2]):\n                    self._schedule.lane_found(lane, now)",
        "if self._peers.owns(lane[:2]) and not lane.lane:\n                    self._schedule.lane_found(lane, now)",
    ),
    Mutation(
        "a cut answer is a success",
        "webhooks/decide.py",
        "return failure is None and code is not None and 200 <= code < 300",
        "return code is not None and 200 <= code < 300",
    ),
    Mutation(
        "heartbeats are too rare",
        "webhooks/worker.py",
        'Chore("heartbeat", BEAT_EVERY, self._beat)',
        'Chore("heartbeat", 5 * BEAT_EVERY, self._beat)',
    ),
    Mutation(
        "a suspended account gets tokens",
        "oauth/client_authentication.py",
        'return "" if account.active else "account_suspended"',
        'return ""',
        seed=3,
    ),
    Mutation(
        "a claim ignores Retry-After",
        "webhooks/queue_rows.sql",
        "    AND NOT EXISTS (SELECT 1 FROM health WHERE account = :account AND endpoint = :endpoint "
        "AND not_before > :now)\n",
        "",
        seed=17,
    ),
    Mutation(
        "a late result is not fenced off",
        "webhooks/queue_rows.sql",
        "queue.id = given.id AND queue.number = given.number\n    AND /*python: MAY_BE_REQUEUED */",
        "queue.id = given.id\n    AND /*python: MAY_BE_REQUEUED */",
        seed=4,
    ),
    Mutation(
        "an attempt uses up nothing",
        "webhooks/decide.py",
        'RetryAt(ended + wait, "schedule", used, ',
        'RetryAt(ended + wait, "schedule", attempted.used, ',
    ),
    Mutation(
        "the plan is shown with another jitter",
        "webhooks/plan.py",
        "plan[-1].number + 1)) is not None",
        "plan[-1].number)) is not None",
    ),
    Mutation(
        "retries are due two seconds early",
        "webhooks/decide.py",
        'RetryAt(ended + wait, "schedule"',
        'RetryAt(ended + wait - 2000, "schedule"',
    ),
    Mutation(
        "a refresh token has two successors",
        "oauth/refresh_tokens.py",
        'mac(key, b"next" + _plain(token))',
        'mac(key, b"next" + ids.new_raw())',
    ),
    Mutation(
        "a repeated refresh gets another token",
        "oauth/refresh_tokens.py",
        "return Repeat(following)",
        "return Repeat(following._replace(number=following.number + 1))",
    ),
    Mutation(
        "ended tokens stay in the cache",
        "store/cache.py",
        "if (changes, ends) == (self.changes, self.ends):",
        "if changes == self.changes:",
    ),
    Mutation(
        "pruning takes unfinished deliveries",
        "webhooks/pruning.py",
        'ended = [raw_id for raw_id, status in own if status != "pending"]',
        "ended = [raw_id for raw_id, status in own]",
    ),
    Mutation(
        "suspended accounts are delivered to",
        "webhooks/claim.py",
        'and account.active and endpoint.status == "active":',
        'and endpoint.status == "active":',
    ),
    Mutation(
        "one account takes all slots",
        "webhooks/schedule_state.py",
        "return min(self.total * 3 // 4 - used, beside)",
        "return self.total",
        seed=2,
    ),
]


def run(mutation: Mutation, days: int = 30) -> subprocess.CompletedProcess[str]:
    """Run histories of the changed code, in a copy of the package, until a violation or the end of the days."""
    with tempfile.TemporaryDirectory(prefix="gatepost-mutation-") as directory:
        copy = Path(directory)
        shutil.copytree(ROOT / "gatepost", copy / "gatepost", ignore=shutil.ignore_patterns("console"))
        (copy / "tests").symlink_to(ROOT / "tests")
        changed = copy / "gatepost" / mutation.file
        changed.write_text(mutated(changed.read_text(), mutation))
        command = [sys.executable, "-m", "tests.simulation", "--seed", str(mutation.seed), "--days", str(days)]
        command += ["--history", "10"]
        return subprocess.run(
            command, cwd=copy, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600
        )


def mutated(text: str, mutation: Mutation) -> str:
    found = text.count(mutation.before)
    if found != 1:
        raise LookupError(f"{mutation.name}: the text occurs {found} times in {mutation.file}, not once")
    return text.replace(mutation.before, mutation.after)
