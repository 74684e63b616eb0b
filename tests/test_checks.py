"""Attacks and faults that senders of webhooks have fallen to, and for each the tests that show we do not."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

GUARD = "tests/unit/test_guard.py"
GUARD_ANY = "tests/property/test_guard.py"
SEND = "tests/flows/test_send.py"
TARGETS = "tests/flows/test_send_targets.py"
GUARDED = "tests/flows/test_guarded_targets.py"
DELIVERY = "tests/flows/test_delivery.py"
RETRIES = "tests/flows/test_retries.py"
STATES = "tests/flows/test_endpoint_states.py"
ROTATION = "tests/flows/test_rotation.py"
REPLAY = "tests/flows/test_replay.py"
LOOPS = "tests/flows/test_loops.py"
ISOLATION = "tests/flows/test_isolation_of_deliveries.py"
DRAIN = "tests/flows/test_drain.py"
LISTED = "tests/flows/test_deliveries_http.py"
NATS = "tests/flows/test_nats.py"
KAFKA = "tests/flows/test_kafka.py"
UNITS = "tests/contract/test_deliveries.py"
ENDINGS = "tests/contract/test_endings.py"
REPLAYS = "tests/contract/test_replays.py"
LISTING = "tests/contract/test_listing.py"
PRUNING = "tests/contract/test_pruning.py"
OUTBOX = "tests/contract/test_outbox.py"
FAILURES = "tests/contract/test_failures.py"
WORKERS = "tests/chaos/test_workers.py"
VERIFY = "tests/unit/test_verify.py"
VERIFIERS = "tests/interop/test_webhook_verifiers.py"
SCHEDULE = "tests/unit/test_schedule.py"
DECIDE = "tests/unit/test_decide.py"

# What could go wrong → the tests that try it.
TARGETS_OF_A_SENDER: dict[str, tuple[str, ...]] = {
    "IPv4 networks that are not public, at definition and at connection": (
        f"{GUARD}::TestAddresses::test_refused",
        f"{GUARD_ANY}::test_what_is_not_global_is_refused",
        f"{GUARDED}::test_what_no_endpoint_can_have",
        f"{GUARDED}::test_a_name_that_leads_inside_is_blocked_each_time_it_is_tried",
    ),
    "IPv6 networks that are not public": (
        f"{GUARD}::TestAddresses::test_refused",
        f"{GUARD_ANY}::test_what_is_not_global_is_refused",
    ),
    "IPv4 inside IPv6: mapped, NAT64, 6to4": (
        f"{GUARD_ANY}::test_a_private_address_inside_another",
        f"{GUARD_ANY}::test_the_mapped_form_is_never_freer",
    ),
    "metadata services by address and by name": (
        f"{GUARD}::test_the_table_is_read_in_order",
        f"{GUARDED}::test_what_no_endpoint_can_have",
    ),
    "addresses as one number, octal, hexadecimal or short": (
        f"{GUARD_ANY}::test_a_private_address_in_the_forms_of_old",
        f"{GUARD}::TestUrls::test_wrong",
    ),
    "a name that is public first and private then": (f"{TARGETS}::TestTargets::test_a_name_that_changes_its_mind",),
    "a redirect to somewhere inside": (
        f"{RETRIES}::test_a_redirect_is_not_followed",
        f"{SEND}::TestAnswers::test_a_redirect_is_a_failure_and_is_not_followed",
    ),
    "strange URLs: user, fragment, scheme, port, line ends, other scripts, length": (
        f"{GUARD}::TestUrls::test_wrong",
        f"{GUARD_ANY}::test_any_text_is_a_url_or_a_problem",
        f"{GUARDED}::test_what_no_endpoint_can_have",
    ),
    "proxies of the environment, and the guard behind a proxy of ours": (
        f"{TARGETS}::TestTargets::test_nothing_comes_from_the_environment",
        f"{TARGETS}::TestProxy::test_the_url_is_still_judged",
        f"{GUARD}::TestUrls::test_a_proxy_does_not_excuse_the_url",
    ),
    "a blocked target is an attempt on record, without the address": (
        f"{GUARDED}::test_a_name_that_leads_inside_is_blocked_each_time_it_is_tried",
    ),
    "a kept connection is not a way around the guard": (f"{TARGETS}::TestTargets::test_a_name_that_changes_its_mind",),
}
ANSWERS: dict[str, tuple[str, ...]] = {
    "a body of a gigabyte": (f"{SEND}::TestHostile::test_a_gigabyte",),
    "a body that unpacks to more": (f"{SEND}::TestHostile::test_a_bomb_is_not_unpacked",),
    "a byte at a time": (f"{SEND}::TestFailures::test_a_byte_at_a_time",),
    "headers without end, or of no letters": (
        f"{SEND}::TestFailures::test_a_bad_answer",
        f"{SEND}::TestHostile::test_the_sender_lives_through_all_of_them",
        f"{DELIVERY}::test_no_receiver_stops_the_worker",
    ),
    "NUL and broken UTF-8 in what is kept": (
        f"{DELIVERY}::test_any_answer_can_be_kept",
        f"{UNITS}::test_any_answer_can_be_kept",
    ),
    "secrets among headers are not shown": (
        f"{DELIVERY}::test_payload_and_responses_only_when_asked_for",
        "tests/unit/test_endpoints.py::TestHiddenHeaders::test_values_like_credentials_are_hidden",
    ),
}
TRUST: dict[str, tuple[str, ...]] = {
    "bad certificates and old TLS, with nothing to switch that off": (
        f"{TARGETS}::TestTls::test_a_bad_one",
        f"{GUARDED}::test_a_certificate_is_always_verified",
    ),
    "other people's verifiers accept both kinds of signature": (
        f"{VERIFY}::TestVectors::test_hmac",
        f"{VERIFY}::TestVectors::test_ed25519",
        f"{VERIFIERS}::TestBodies::test_verifies",
        f"{DELIVERY}::test_the_receiver_gets_the_event_as_it_was_recorded_and_signed",
    ),
    "what is signed is what is sent, byte for byte": (
        f"{DELIVERY}::test_the_receiver_gets_the_event_as_it_was_recorded_and_signed",
        f"{VERIFIERS}::TestBodies::test_refused_when_a_byte_is_added",
    ),
    "while a secret is replaced both verify, afterwards only the new": (
        f"{ROTATION}::test_both_secrets_verify_until_the_overlap_ends",
        f"{ROTATION}::test_without_an_overlap_the_old_one_ends_at_once",
    ),
    "no dot in what is signed, the time is the attempt's, the id stays": (
        "tests/unit/test_message.py::test_what_is_signed_has_no_dot_in_it",
        f"{RETRIES}::test_it_is_tried_again_as_planned_until_it_is_taken",
    ),
    "verifying: in constant time, recent, never with an empty secret, unknown versions passed over": (
        f"{VERIFY}::TestSignatures::test_one_right_one_is_enough",
        f"{VERIFY}::TestSignatures::test_every_byte_counts",
        f"{VERIFY}::TestSecrets::test_an_empty_or_unreadable_secret_verifies_nothing",
        f"{VERIFY}::TestTime::test_not_more",
    ),
    "headers of an endpoint's own override nothing of ours": (
        f"{DELIVERY}::test_headers_that_are_not_the_endpoints_to_set",
    ),
    "header values with line ends or NUL": (f"{DELIVERY}::test_header_values_that_could_become_something_else",),
    "secrets at rest, shown once, and no start without the key": (
        f"{ROTATION}::test_a_secret_at_rest_is_nothing_without_the_master_key",
        f"{STATES}::test_the_answer_with_a_secret_is_not_to_be_kept",
        "tests/unit/test_secrets.py::TestBox::test_a_sealed_value_names_its_key",
        "tests/flows/test_keys.py::test_rewrap_new_under_a_running_server",
    ),
    "ids and cursors of another account, everywhere": (
        f"{STATES}::test_an_id_of_another_account_is_an_unknown_one_in_every_member",
        f"{STATES}::test_a_replay_finds_nothing_of_another_account",
        f"{LISTED}::test_what_is_anothers_is_as_if_unknown",
        f"{LISTED}::test_a_cursor_is_bound",
        f"{UNITS}::test_a_subscription_is_of_an_endpoint_of_its_account",
    ),
}
GUARANTEES: dict[str, tuple[str, ...]] = {
    "a worker killed at every step: nothing lost, no duplicate hidden": (
        f"{WORKERS}::test_killed_at_a_step",
        f"{WORKERS}::test_killed_at_random_moments_under_load",
        f"{DRAIN}::test_a_delivery_process_that_is_killed_is_started_again",
    ),
    "a row of the outbox that was rolled back": (f"{OUTBOX}::test_what_was_rolled_back_is_never_moved",),
    "the database restarted, cut off or out of connections": (
        f"{DRAIN}::test_postgres_restarted_while_events_come_and_go",
        f"{FAILURES}::test_connections_cut_under_load",
        f"{FAILURES}::test_a_server_that_stands_still",
    ),
    "a message that the bus brings again, and one that cannot be read": (
        f"{NATS}::test_the_same_id_is_published_once",
        f"{NATS}::test_nothing_is_acknowledged_before_the_commit",
        f"{NATS}::test_poison_is_recorded_once_and_not_looped",
        f"{KAFKA}::test_killed_around_the_commit",
        f"{KAFKA}::test_poison_is_recorded_once_and_not_looped",
    ),
    "a lease that ends while the request still runs": (
        f"{UNITS}::test_a_lease_that_ran_out_is_an_interrupted_attempt",
        f"{UNITS}::test_a_late_result_after_another_claim_changes_nothing",
    ),
    "a worker whose clock is ten minutes off": (f"{RETRIES}::test_a_worker_whose_clock_is_wrong",),
    "Retry-After of any kind": (
        "tests/unit/test_plan.py::test_retry_after",
        "tests/property/test_plan.py::test_no_retry_after_is_a_surprise",
        f"{RETRIES}::test_what_asks_for_nothing_follows_the_plan",
        f"{RETRIES}::test_retry_after_is_limited_by_the_endpoint",
    ),
    "410 disables with a reason, 429 and 503 slow that endpoint only": (
        f"{RETRIES}::test_410_disables_the_endpoint_and_resuming_delivers_the_others",
        f"{RETRIES}::test_retry_after_is_for_the_whole_endpoint",
    ),
    "a flooded endpoint that does not answer": (
        f"{ISOLATION}::test_a_backlog_of_one_account_does_not_hold_up_another",
        f"{ISOLATION}::test_no_more_at_once_than_the_endpoint_takes",
        f"{SCHEDULE}::TestShares::test_an_endpoint_has_half",
    ),
    "a flooded account": (
        f"{ISOLATION}::test_a_backlog_of_one_account_does_not_hold_up_another",
        "tests/property/test_schedule.py::test_a_backlog_of_others_delays_a_delivery_by_at_most_one_round",
    ),
    "retries do not starve first attempts, nor the other way round": (
        f"{SCHEDULE}::TestShares::test_first_attempts_and_retries_have_three_quarters_each",
    ),
    "paused and removed with deliveries waiting: each has a state and a reason": (
        f"{STATES}::test_what_is_paused_is_held_and_resumed_without_loss",
        f"{STATES}::test_a_removed_endpoint_ends_what_waits_and_forgets_its_secret",
        f"{STATES}::test_a_subscription_that_ended_matches_nothing_new_and_its_deliveries_go_on",
        f"{ENDINGS}::test_held_too_long_ends_in_slices_with_an_entry_each",
    ),
    "a replay that is cut short in silence": (
        f"{REPLAYS}::test_a_replay_goes_in_slices_and_has_no_cap",
        f"{REPLAY}::test_a_new_subscription_gets_what_was_before_it_and_nothing_is_cut_short",
    ),
    "an event that matches nothing": (f"{DELIVERY}::test_an_event_without_subscribers_is_in_the_ledger",),
    "a request swallowed by a kept connection": (
        f"{SEND}::TestOnce::test_what_a_kept_connection_swallowed_is_not_sent_again",
        f"{RETRIES}::test_what_a_kept_connection_swallowed_is_one_failed_attempt",
    ),
    "loops of failures, and of our own intake": (
        f"{LOOPS}::test_two_failing_endpoints_that_subscribe_to_failures",
        f"{LOOPS}::test_an_endpoint_gets_no_events_about_itself",
        f"{LOOPS}::test_gatepost_itself_is_never_an_endpoint",
        f"{GUARDED}::test_a_name_that_leads_to_gatepost_itself_is_blocked_though_the_network_is_allowed",
    ),
    "a delivery that kills its worker": (
        f"{UNITS}::test_the_third_interruption_in_a_row_uses_up_a_planned_attempt",
        f"{DECIDE}::TestInterruption::test_what_kills_every_worker_is_not_for_ever",
    ),
    "32 endpoints that never answer": (f"{ISOLATION}::test_many_that_never_answer_do_not_hold_up_one_that_does",),
    "a snapshot that is held open": (f"{ISOLATION}::test_a_long_report_does_not_stop_deliveries",),
    "each network call is one attempt, on record before it": (
        f"{RETRIES}::test_an_attempt_is_on_record_while_it_is_under_way",
        f"{UNITS}::test_an_attempt_is_on_record_before_it_is_made",
    ),
    "an endpoint's health survives a restart": (
        f"{DRAIN}::test_an_attempt_under_way_has_all_its_time",
        f"{ENDINGS}::test_120_hours_without_a_success_disable",
    ),
    "a list that stays in order and in bounds while it grows": (
        f"{LISTING}::test_each_exactly_once_while_others_are_made",
        f"{LISTING}::test_every_page_is_read_from_its_index_in_order",
        f"{LISTING}::test_a_page_looks_at_so_many_and_says_how_far_it_came",
    ),
    "pruning in slices, and never what is unfinished": (
        f"{PRUNING}::test_pruning_goes_in_slices",
        f"{PRUNING}::test_an_unfinished_one_stays_until_it_is_ended_however_old",
    ),
    "SIGTERM while attempts are under way": (
        f"{DRAIN}::test_attempts_under_way_are_finished_before_the_end",
        f"{DRAIN}::test_an_attempt_under_way_has_all_its_time",
    ),
    "a URL, a secret or a schedule that changes during a retry": (
        f"{RETRIES}::test_a_url_that_changed_is_the_next_attempts",
        f"{RETRIES}::test_a_schedule_that_changed_counts_from_the_next_planning",
        f"{ROTATION}::test_a_retry_is_signed_with_what_is_live_then",
    ),
}
CHECKS = TARGETS_OF_A_SENDER | ANSWERS | TRUST | GUARANTEES


def names_in(path: Path) -> set[str]:
    """Names of the tests of a file, those of a class behind its own."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return {each for each in found if each.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("check", CHECKS)
def test_each_is_tried(check: str) -> None:
    assert CHECKS[check]
    for each in CHECKS[check]:
        path, _, name = each.partition("::")
        assert name in names_in(ROOT / path), each


def test_none_is_named_twice() -> None:
    parts = (TARGETS_OF_A_SENDER, ANSWERS, TRUST, GUARANTEES)
    assert len(CHECKS) == sum(len(each) for each in parts)
