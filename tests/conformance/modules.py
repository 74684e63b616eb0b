"""The modules of the OpenID Foundation's plans, and what a run of the suite ends with for each, and why.

Each has a test here that is named after it: `oidcc-scope-email` is `test_oidcc_scope_email`.
"""

from typing import Literal, NamedTuple

Outcome = Literal["passes", "review", "warns", "skipped", "does not apply"]


class Module(NamedTuple):
    """A module has a reason if it does not simply pass."""

    outcome: Outcome = "passes"
    why: str = ""


class Plan(NamedTuple):
    title: str
    name: str
    variant: str  # empty where the plan takes none
    file: str
    prefix: str  # of all its modules, which their tests leave out
    size: int
    modules: dict[str, Module]

    def test(self, module: str) -> str:
        return "test_" + module.removeprefix(self.prefix).replace("-", "_").lower()


PASSES = Module()
TLS = Module(why="Its TLS checks apply to the proxy that terminates TLS.")
BY_OTHERS = Module(
    "does not apply",
    "It requires dynamic client registration without authentication. In Gatepost, defining a client "
    "requires a token, so the plan is run with static clients.",
)
RELEASED = Module(
    why="The login application has to provide the claims. The module reports those that it does not provide as missing."
)
SCREENSHOT = Module("review", "The suite requests a screenshot of the error page for manual review.")
SECOND_LOGIN = Module("review", "The suite requests a screenshot of the second login for manual review.")
NO_OBJECTS = Module("skipped", "The response is `request_not_supported`, which the module accepts.")

FAPI2 = Plan(
    "FAPI 2.0 Security Profile: client credentials",
    "fapi2-security-profile-final-test-plan",
    "`fapi_profile=fapi_client_credentials_grant`, `client_auth_type=private_key_jwt`, `sender_constrain=dpop`, "
    "`openid=plain_oauth`",
    "test_fapi2_client_credentials.py",
    "fapi2-security-profile-final-",
    14,
    {
        "fapi2-security-profile-final-discovery-end-point-verification": PASSES,
        "fapi2-security-profile-final-happy-flow": TLS,
        "fapi2-security-profile-final-access-token-type-header-case-sensitivity": PASSES,
        "fapi2-security-profile-final-check-dpop-proof-nbf-exp": PASSES,
        "fapi2-security-profile-final-ensure-dpopproof-with-iat-10seconds-before-succeeds": PASSES,
        "fapi2-security-profile-final-ensure-dpopproof-with-iat-10seconds-after-succeeds": PASSES,
        "fapi2-security-profile-final-ensure-client-id-in-token-endpoint": PASSES,
        "fapi2-security-profile-final-ensure-holder-of-key-required": TLS,
        "fapi2-security-profile-final-ensure-signed-client-assertion-with-RS256-fails": Module(
            why="The suite skips this module unless the client has an RSA key."
        ),
        "fapi2-security-profile-final-ensure-client-assertion-in-token-endpoint": PASSES,
        "fapi2-security-profile-final-ensure-client-assertion-with-exp-is-5-minutes-in-past-fails": PASSES,
        "fapi2-security-profile-final-ensure-client-assertion-with-wrong-aud-fails": PASSES,
        "fapi2-security-profile-final-ensure-client-assertion-with-no-sub-fails": PASSES,
        "fapi2-security-profile-final-dpop-negative-tests": PASSES,
    },
)

STATIC_CLIENTS = (
    "`server_metadata=discovery`, `client_registration=static_client`, and clients defined with `require_pkce: false` "
    "and `require_nonce: false`, because one of its modules sends neither"
)
OIDC_BASIC = Plan(
    "OpenID Connect: Basic OP",
    "oidcc-basic-certification-test-plan",
    STATIC_CLIENTS,
    "test_oidc_basic.py",
    "",
    38,
    {
        "oidcc-server": PASSES,
        "oidcc-response-type-missing": PASSES,
        "oidcc-idtoken-signature": BY_OTHERS,
        "oidcc-idtoken-unsigned": BY_OTHERS,
        "oidcc-userinfo-get": PASSES,
        "oidcc-userinfo-post-header": PASSES,
        "oidcc-userinfo-post-body": PASSES,
        "oidcc-ensure-request-without-nonce-succeeds-for-code-flow": Module(
            why="It fails for a client whose `require_nonce` is true, the default, because a request "
            "without PKCE then requires a `nonce`."
        ),
        "oidcc-scope-profile": RELEASED,
        "oidcc-scope-email": RELEASED,
        "oidcc-scope-address": RELEASED,
        "oidcc-scope-phone": RELEASED,
        "oidcc-scope-all": RELEASED,
        "oidcc-alternate-happy-flow": RELEASED,
        "oidcc-display-page": PASSES,
        "oidcc-display-popup": PASSES,
        "oidcc-prompt-login": SECOND_LOGIN,
        "oidcc-prompt-none-not-logged-in": PASSES,
        "oidcc-prompt-none-logged-in": PASSES,
        "oidcc-max-age-1": SECOND_LOGIN,
        "oidcc-max-age-10000": PASSES,
        "oidcc-ensure-request-with-unknown-parameter-succeeds": PASSES,
        "oidcc-id-token-hint": PASSES,
        "oidcc-login-hint": PASSES,
        "oidcc-ui-locales": PASSES,
        "oidcc-claims-locales": PASSES,
        "oidcc-ensure-request-with-acr-values-succeeds": Module(
            why="It warns unless the login application returns a requested `acr`."
        ),
        "oidcc-codereuse": PASSES,
        "oidcc-codereuse-30seconds": PASSES,
        "oidcc-ensure-registered-redirect-uri": SCREENSHOT,
        "oidcc-ensure-post-request-succeeds": PASSES,
        "oidcc-server-client-secret-post": PASSES,
        "oidcc-request-uri-unsigned-supported-correctly-or-rejected-as-unsupported": BY_OTHERS,
        "oidcc-unsigned-request-object-supported-correctly-or-rejected-as-unsupported": NO_OBJECTS,
        "oidcc-claims-essential": PASSES,
        "oidcc-ensure-request-object-with-redirect-uri": SCREENSHOT,
        "oidcc-refresh-token": PASSES,
        "oidcc-ensure-request-with-valid-pkce-succeeds": PASSES,
    },
)

# The modules of the Basic OP plan, with `response_mode=form_post`.
OIDC_FORM_POST = OIDC_BASIC._replace(
    title="OpenID Connect: Form Post Basic OP", name="oidcc-formpost-basic-certification-test-plan"
)

OIDC_CONFIG = Plan(
    "OpenID Connect: Config OP",
    "oidcc-config-certification-test-plan",
    "",
    "test_oidc_config.py",
    "",
    1,
    {"oidcc-discovery-endpoint-verification": PASSES},
)

PLANS = (FAPI2, OIDC_BASIC, OIDC_FORM_POST, OIDC_CONFIG)
