"""Attacks that authorization servers have fallen to, and for each the tests that show we do not."""

import pytest

from tests.test_checks import ROOT, names_in

AUTHORIZE = "tests/flows/test_authorize.py"
HANDOFF = "tests/flows/test_handoff.py"
PAR = "tests/flows/test_par.py"
CODE = "tests/flows/test_code.py"
USERINFO = "tests/flows/test_userinfo.py"
REFRESH = "tests/flows/test_refresh.py"
INTROSPECTION = "tests/flows/test_introspection.py"
REVOCATION = "tests/flows/test_revocation.py"
DPOP = "tests/flows/test_dpop.py"
EXCHANGE = "tests/flows/test_token_exchange.py"
BEARER = "tests/flows/test_jwt_bearer.py"
JWKS_URI = "tests/flows/test_jwks_uri.py"
FAPI2 = "tests/flows/test_fapi2.py"
ASSERTIONS = "tests/flows/test_private_key_jwt.py"
AUTHENTICATION = "tests/flows/test_authentication.py"
BAD_DEFINITIONS = "tests/flows/test_bad_definitions.py"
BAD_INPUT = "tests/flows/test_bad_input.py"
ESCALATION = "tests/flows/test_escalation.py"
ISOLATION = "tests/flows/test_isolation.py"
SECRETS = "tests/flows/test_secrets.py"
ASKED = "tests/unit/test_authorization_request.py"
SAID = "tests/unit/test_handoff.py"
PROOFS = "tests/unit/test_dpop.py"
FAMILIES = "tests/unit/test_families.py"
OWN = "tests/unit/test_own_tokens.py"
JWS = "tests/unit/test_jws.py"
FETCH = "tests/flows/test_fetch.py"
REDIRECTS = "tests/unit/test_redirect_uris.py"

REDIRECTING: dict[str, tuple[str, ...]] = {
    "a redirect URI that is nearly the registered one": (
        f"{AUTHORIZE}::test_an_unknown_redirect_uri_is_not_redirected_to",
        f"{ASKED}::TestWhereAnAnswerGoes::test_only_the_exact_text_will_do",
    ),
    "a loopback address with another port, and with another query": (
        f"{AUTHORIZE}::test_a_loopback_redirect_may_have_any_port",
        f"{ASKED}::TestWhereAnAnswerGoes::test_and_nothing_else_may_differ",
    ),
    "an error that redirects to where nobody registered": (
        f"{AUTHORIZE}::test_an_unknown_client_is_not_redirected",
        f"{AUTHORIZE}::test_an_unknown_redirect_uri_is_not_redirected_to",
        f"{AUTHORIZE}::test_a_parameter_that_is_sent_twice",
    ),
    "the implicit and the password grant": (
        f"{AUTHORIZE}::test_other_errors_are_redirected_to_the_client",
        f"{HANDOFF}::test_a_grant_that_was_disabled",
    ),
    "PKCE left out, plain, or stripped": (
        f"{ASKED}::test_a_wrong_request",
        f"{CODE}::test_a_redemption_matches_its_authorization",
        f"{CODE}::test_a_client_that_is_excused_from_pkce",
    ),
    "mix-up: the issuer in every answer": (f"{AUTHORIZE}::test_the_issuer_of_a_response_is_that_of_the_metadata",),
    "redirects that repeat a form, and referrers, caches and frames": (
        f"{AUTHORIZE}::test_the_browser_goes_to_the_login_application",
        f"{AUTHORIZE}::test_other_errors_are_redirected_to_the_client",
    ),
    "text of a stranger as markup": (f"{AUTHORIZE}::test_an_error_by_form_post",),
    "an interaction that is finished in another browser, or without its cookie": (
        f"{HANDOFF}::test_a_handoff_in_another_browser",
        f"{HANDOFF}::test_interactions_of_one_browser_are_independent",
    ),
    "a pushed request: spent at the end, bound to its client, and not inside another": (
        f"{PAR}::test_it_is_spent_when_its_authorization_completes_and_not_when_it_is_opened",
        f"{PAR}::test_only_the_client_that_pushed_may_open",
        f"{PAR}::test_it_expires",
        f"{PAR}::test_a_pushed_request_is_not_pushed_again",
    ),
}

CODES_AND_TOKENS: dict[str, tuple[str, ...]] = {
    "a code of another client, address, account or key": (
        f"{CODE}::test_a_code_is_bound_to_one_client",
        f"{CODE}::test_a_redemption_matches_its_authorization",
        f"{CODE}::test_a_code_is_bound_to_the_key_that_was_named",
    ),
    "a code that is used twice, one after the other and at once": (
        f"{CODE}::test_reusing_a_code_revokes_its_tokens",
        f"{CODE}::test_of_fifty_concurrent_redemptions_one_succeeds_and_is_revoked",
    ),
    "the name of one thing taken for another": (f"{PAR}::test_request_uris_and_codes_are_not_interchangeable",),
    "a refresh token of another client or account": (
        f"{REFRESH}::test_another_client_cannot_use_it_and_does_no_harm",
        f"{REFRESH}::test_another_account_cannot_use_it_and_does_no_harm",
    ),
    "fifty refreshes at once": (f"{REFRESH}::test_many_at_once_get_one_successor",),
    "reuse after a restart": (f"{REFRESH}::test_another_process_notices_reuse",),
    "a refresh that races a revocation": (
        f"{REFRESH}::test_nothing_is_active_after_a_revocation_however_many_refresh_meanwhile",
    ),
    "the grace for what was revoked, and for what is two generations old": (
        f"{REFRESH}::test_no_grace_after_it_was_revoked",
        f"{REFRESH}::test_no_grace_once_the_successor_was_used",
    ),
    "what held once and holds no longer at a refresh": (
        f"{REFRESH}::test_a_refresh_after_its_client_account_or_consent_has_ended",
    ),
    "a wider scope at a refresh or an exchange": (
        f"{REFRESH}::test_a_wider_scope_is_refused_and_does_no_harm",
        f"{EXCHANGE}::test_what_may_not_be_obtained",
    ),
    "every truncation and every bit of a token": (
        f"{FAMILIES}::TestFormat::test_every_truncation",
        f"{FAMILIES}::TestFormat::test_every_single_bit",
        f"{INTROSPECTION}::test_every_truncation_and_every_bit_of_an_access_token",
    ),
    "tokens in clear at rest, and hashes taken for secrets": (
        f"{CODE}::test_personal_data_and_tokens_are_not_stored_in_clear",
        f"{REFRESH}::test_only_a_hash_is_kept",
        f"{FAMILIES}::TestFormat::test_what_is_kept_is_not_a_token_nor_part_of_one",
    ),
    "revocation of what is another's, and a 200 for what did not end": (
        f"{REVOCATION}::test_tokens_of_another_client_are_not_revoked",
        f"{REVOCATION}::test_it_is_never_said_to_have_ended_when_it_has_not",
        f"{REVOCATION}::test_revoking_an_access_token_ends_its_family",
    ),
    "introspection by strangers": (
        f"{INTROSPECTION}::test_other_clients_see_an_inactive_token",
        f"{INTROSPECTION}::test_clients_of_other_accounts_see_an_inactive_token",
    ),
}

SIGNED: dict[str, tuple[str, ...]] = {
    "algorithms that a key is not for, none at all, and keys that a token brings": (
        f"{OWN}::TestHeaders::test_changed",
        f"{OWN}::TestHeaders::test_a_key_that_the_token_brings",
        f"{OWN}::TestKeys::test_a_public_key_is_no_hmac_secret",
        f"{BEARER}::test_a_key_url_in_an_assertion_is_never_fetched",
    ),
    "assertions: whose, for whom, how long, and once": (
        f"{ASSERTIONS}::test_a_wrong_assertion",
        f"{ASSERTIONS}::test_of_fifty_concurrent_uses_one_succeeds",
        f"{FAPI2}::test_the_audience_of_an_assertion_is_the_issuer_as_text",
    ),
    "an issuer that is not trusted, or for somebody else's repository": (
        f"{BEARER}::test_a_wrong_assertion",
        f"{BEARER}::test_two_accounts_trust_one_issuer_for_one_repository_each",
        "tests/unit/test_jwt_bearer.py::test_an_entry_without_a_match_matches_nothing",
    ),
    "one kind of JWT taken for another": (
        f"{CODE}::test_an_id_token_is_not_accepted_as_access_token",
        f"{BEARER}::test_access_tokens_are_not_accepted_as_assertions",
        f"{REVOCATION}::test_handoffs_and_revocations_are_not_interchangeable",
        f"{REFRESH}::test_other_tokens_are_no_refresh_tokens_nor_the_other_way_around",
        f"{OWN}::TestHeaders::test_for_every_kind_of_token_only_itself",
    ),
    "proofs of possession: every rule, replay, and the same key at a refresh": (
        f"{PROOFS}::test_a_wrong_proof",
        f"{DPOP}::test_a_proof_is_used_once",
        f"{DPOP}::test_of_fifty_at_once_one_gets_a_token",
        f"{DPOP}::test_a_public_clients_refresh_token_is_bound_to_the_key",
    ),
    "an exchange without, or with somebody else's, subject": (
        f"{EXCHANGE}::test_an_exchange_without_a_subject_token_is_refused",
        f"{EXCHANGE}::test_only_the_client_or_a_server_of_the_audience_exchanges_a_token",
        f"{EXCHANGE}::test_a_token_of_another_account",
    ),
}

OUTSIDE_AND_BETWEEN: dict[str, tuple[str, ...]] = {
    "URLs that we fetch": (
        f"{FETCH}::TestAddresses::test_where_no_public_server_is",
        f"{FETCH}::TestAddresses::test_a_name_that_is_turned_to_another_address_is_judged_again",
        f"{FETCH}::TestFetching::test_redirects_are_not_followed",
        f"{FETCH}::TestFetching::test_one_without_end",
        f"{FETCH}::TestFetching::test_no_cookie_is_kept",
        f"{JWKS_URI}::test_a_server_that_never_answers",
        f"{JWKS_URI}::test_private_addresses_are_refused_without_dev",
    ),
    "headers of a proxy that change issuer or links": (
        f"{AUTHORIZE}::test_headers_of_a_proxy_change_neither_issuer_nor_links",
        f"{DPOP}::test_no_header_changes_the_address_that_a_proof_is_for",
    ),
    "claims of others that look like ours": (
        f"{SAID}::TestAFaultOfTheLoginApplications::test_protocol_claims_are_not_its_to_set",
    ),
    "a client registered with a key that shows a secret": (
        f"{AUTHENTICATION}::test_a_secret_is_not_accepted_once_the_client_has_a_key",
        f"{BAD_INPUT}::test_two_ways_to_authenticate_at_once",
    ),
    "headers that are critical, compressed or huge": (
        f"{OWN}::TestHeaders::test_changed",
        f"{BEARER}::test_a_wrong_assertion",
    ),
    "secrets longer than a hash function looks at": (f"{SECRETS}::test_only_the_whole_secret_works",),
    "registration with what only the service decides": (
        f"{BAD_DEFINITIONS}::test_a_client_member",
        "tests/unit/test_bad_definitions.py::test_a_client_member_is_refused_by_name",
        "tests/unit/test_bad_definitions.py::test_members_that_do_not_fit_together_are_refused",
        f"{BAD_DEFINITIONS}::test_a_client_id_is_never_chosen_by_the_caller",
    ),
    "http redirects, and addresses with a user in them": (
        f"{REDIRECTS}::test_wrong",
        f"{BAD_DEFINITIONS}::test_a_redirect_uri",
    ),
    "every operation with the ids of another account": (
        f"{ISOLATION}::test_an_id_of_another_account_is_an_unknown_id",
        f"{ISOLATION}::test_a_token_acts_in_its_own_account_only",
    ),
    "a resource of another account": (
        f"{ISOLATION}::test_a_resource_belongs_to_one_account",
        f"{ISOLATION}::test_of_two_accounts_that_define_a_resource_at_once_one_wins",
    ),
    "NUL, huge fields and wrong content types": (
        f"{BAD_INPUT}::test_a_wrong_token_request",
        f"{BAD_INPUT}::test_a_token_request_is_a_form",
        f"{BAD_INPUT}::test_a_body_may_have_64_kib",
        f"{AUTHORIZE}::test_characters_that_no_parameter_may_contain",
    ),
    "an address that a caller claims": (f"{AUTHENTICATION}::test_a_forwarded_address_is_not_trusted",),
    "a master key that is empty or not random": (
        "tests/unit/test_secrets.py::TestMasterKeys::test_what_is_no_key_is_refused_with_what_to_do",
    ),
    "a caller who rotates or reads a client that can do more": (
        f"{ESCALATION}::test_reading_or_changing_a_client_with_more_scopes_than_the_caller",
        f"{ESCALATION}::test_adding_scopes_to_the_calling_or_another_client",
        f"{ESCALATION}::test_a_kept_answer_is_subject_to_the_same_rule",
        f"{ESCALATION}::test_a_kept_answer_about_a_client_that_can_do_more_by_now",
    ),
    "an idempotency key of another": (f"{ISOLATION}::test_an_idempotency_key_is_of_one_account_client_and_operation",),
    "a handoff of another account, or with more than was asked for": (
        f"{HANDOFF}::test_the_key_of_another_account",
        f"{HANDOFF}::test_an_invalid_handoff",
    ),
    "a person of one account taken for one of another": (
        f"{CODE}::test_the_same_subject_in_two_accounts_gets_two_subs",
    ),
    "the end of an account, a client or a consent that is noticed too late": (
        f"{INTROSPECTION}::test_inactive_at_once",
        f"{REVOCATION}::test_every_process_refuses_it_at_once",
        f"{USERINFO}::test_a_consent_that_was_taken_back",
    ),
    "a throttle that locks out a client with the right credentials": (
        f"{AUTHENTICATION}::test_correct_credentials_pass_after_failures",
        f"{AUTHENTICATION}::test_concurrent_failures_do_not_avoid_the_limit",
    ),
    "a ledger that is filled in the name of a public client": (
        "tests/flows/test_public_refusals.py::test_ten_refusals_a_minute_are_recorded_individually",
        "tests/flows/test_public_refusals.py::test_a_public_client_that_is_flooded_still_works",
        "tests/unit/test_entries.py::TestWhatARefusalRepeats::test_at_most_256_characters_of_a_value",
    ),
    "a limit on interactions or pushed requests that stops the sign-ins of others": (
        "tests/flows/test_open_interactions.py::test_anonymous_visits_do_not_block_others_behind_the_same_address",
        "tests/flows/test_open_interactions.py::test_a_new_cookie_for_each_visit_does_not_avoid_the_limit",
        "tests/flows/test_open_interactions.py::test_the_oldest_pushed_request_is_evicted",
    ),
    "parameters stored without a bound": (
        "tests/flows/test_open_interactions.py::test_only_known_parameters_are_stored",
    ),
    "failed authentications spread over several endpoints": (
        f"{INTROSPECTION}::test_failures_count_together_with_those_of_the_token_endpoint",
    ),
}
CHECKS = REDIRECTING | CODES_AND_TOKENS | SIGNED | OUTSIDE_AND_BETWEEN


@pytest.mark.parametrize("check", CHECKS)
def test_each_is_tried(check: str) -> None:
    assert CHECKS[check]
    for each in CHECKS[check]:
        path, _, name = each.partition("::")
        assert name in names_in(ROOT / path), each


def test_none_is_named_twice() -> None:
    parts = (REDIRECTING, CODES_AND_TOKENS, SIGNED, OUTSIDE_AND_BETWEEN)
    assert len(CHECKS) == sum(len(each) for each in parts)
