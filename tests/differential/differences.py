"""Where Gatepost and node oidc-provider answer a bad request differently, and why Gatepost answers as it does.

An answer is a status and an error code; `login` means that the person is sent to be signed in, so the request passed.
The page docs/reference/differences.md is made from this: `.venv/bin/python -m tests.differential.differences`.
"""

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


class Difference(NamedTuple):
    ours: str
    theirs: str
    reason: str


class Reason(NamedTuple):
    """One reason, and the requests that it is the reason for."""

    text: str
    pairs: dict[tuple[str, str], tuple[str, ...]]  # what each answers → the requests


def of(area: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{area}: {name}" for name in names)


NOT_ALLOWED = ("405 method_not_allowed", "404")
FAILED = ("401 invalid_client", "400 invalid_request")
ACCEPTED_ASSERTION = ("401 invalid_client", "200")
NO_SUCH_SCOPE = ("400 invalid_scope", "200")
NOWHERE = ("400 invalid_request", "400 invalid_redirect_uri")
BACK, LOGIN = "303 to client: invalid_request", "303 login"
BACK_SCOPE = "303 to client: invalid_scope"

REASONS: dict[str, tuple[Reason, ...]] = {
    "Methods, sizes and encodings": (
        Reason(
            "An existing path responds to an unsupported method with 405 and `Allow` (RFC 9110, section 15.5.6).",
            {
                NOT_ALLOWED: (
                    *of("token", "by GET", "by PUT", "by DELETE", "by PATCH"),
                    *of("redirect", "by PUT", "by DELETE"),
                    *of("push", "by GET", "by PUT"),
                    *of("introspect", "by GET", "by DELETE"),
                    *of("revoke", "by GET", "by DELETE"),
                    *of("userinfo", "by PUT", "by DELETE"),
                )
            },
        ),
        Reason(
            "A body over 64 KiB is 413, whatever it contains (RFC 9110, section 15.5.14).",
            {("413 request_too_large", "400 invalid_request"): of("token", "a body too large")},
        ),
        Reason(
            "Parameters must be UTF-8 (RFC 6749, appendix B) without NUL. A request that cannot be decoded is"
            " malformed.",
            {
                ("400 invalid_request", "400 invalid_scope"): of("token", "a byte that is not UTF-8", "a NUL"),
                ("400 invalid_request", LOGIN): of("redirect", "a NUL"),
                ("400 invalid_request", "400 invalid_client"): of("redirect", "a byte that is not UTF-8"),
            },
        ),
        Reason(
            "A request can have at most 100 parameters.",
            {("400 invalid_request", LOGIN): of("authorize", "a hundred parameters more")},
        ),
        Reason(
            "Parameters that are passed to the login application are part of a URL, so their length is limited.",
            {(BACK, LOGIN): of("authorize", "a state too long", "a nonce too long")},
        ),
    ),
    "Client authentication": (
        Reason(
            "Invalid or missing client credentials are always `invalid_client` with 401 (RFC 6749, section 5.2).",
            {
                FAILED: (
                    *of("client", "nothing shown", "no secret", "no client", "no colon", "nothing after Basic"),
                    *of("client", "a space after Basic", "not base64", "not UTF-8 in base64"),
                    *of("client", "a percent sign alone in base64", "a secret with one more character"),
                    *of("client", "a bearer token instead", "digest instead", "by post, no client_id"),
                    *of("push", "nothing shown, and no client_id"),
                    *of("introspect", "nothing shown", "a bearer token instead of a client"),
                    *of("revoke", "nothing shown", "a bearer token instead of a client"),
                )
            },
        ),
        Reason(
            "Several spaces are permitted between the scheme and the credentials (RFC 9110, section 11.4), so"
            " this request is valid.",
            {("200", "400 invalid_request"): of("client", "two spaces after Basic")},
        ),
        Reason(
            "Authorization is not a list, so it must not be repeated (RFC 9110, section 5.3). A server that "
            "uses one of two values may use a different one than the proxy in front of it.",
            {("400 invalid_request", "200"): of("client", "Authorization twice")},
        ),
        Reason(
            "A client can use only the authentication method that it is registered for (RFC 7591, section 2).",
            {("401 invalid_client", "200"): of("client", "a client of post by basic", "a client of basic by post")},
        ),
        Reason(
            "An invalid assertion is `invalid_client` (RFC 7521, section 4.2.1), even if it cannot be parsed.",
            {FAILED: of("assertion", "no JWT", "two parts")},
        ),
        Reason(
            "The type of a JWT is checked, so that one kind is not accepted as another (RFC 8725, section 3.11).",
            {ACCEPTED_ASSERTION: of("assertion", "the type of an access token", "the type of a proof")},
        ),
        Reason(
            "A server may refuse assertions with times that are too far in the future or the past (RFC 7523, "
            "section 3). Gatepost accepts an assertion for at most five minutes.",
            {
                ACCEPTED_ASSERTION: of(
                    "assertion", "iat is ahead", "it lives for a day, without iat", "it was made an hour ago"
                )
            },
        ),
        Reason(
            "If an assertion were valid for several servers, one of them could use it at another. The "
            "audience must therefore be only this server (a strict interpretation of RFC 7523, section 3).",
            {ACCEPTED_ASSERTION: of("assertion", "aud is several servers")},
        ),
        Reason(
            "Introspection requires client authentication (RFC 7662, section 2.1), which a public client does"
            " not have.",
            {("401 invalid_client", "200 inactive"): of("introspect", "a public client")},
        ),
    ),
    "Grants and scopes": (
        Reason(
            "A client that is not configured for a grant type gets `unauthorized_client` (RFC 6749, section 5.2).",
            {
                ("400 unauthorized_client", "400 invalid_request"): of(
                    "token", "a machine with a code", "a machine with a refresh token", "a public client for itself"
                )
            },
        ),
        Reason(
            "Gatepost supports these grant types (RFC 8693, RFC 7523), but the client is not configured for "
            "them. oidc-provider does not support them.",
            {
                ("400 unauthorized_client", "400 unsupported_grant_type"): of(
                    "token", "token exchange without that grant", "a JWT assertion without that grant"
                )
            },
        ),
        Reason(
            "There is no default scope, so a request without a scope fails (RFC 6749, section 3.3).",
            {
                NO_SUCH_SCOPE: of("token", "no scope", "an empty scope"),
                (BACK_SCOPE, LOGIN): of("authorize", "no scope", "an empty scope"),
                ("400 invalid_scope", "201"): of("push", "no scope"),
            },
        ),
        Reason(
            "A request for a scope that cannot be granted is refused. RFC 6749, section 3.3, also permits "
            "omitting the scope.",
            {
                NO_SUCH_SCOPE: of(
                    "token", "an unknown scope", "a known and an unknown scope", "openid for a machine",
                    "offline_access for a machine", "a scope of the service's own", "a percent sign alone",
                ),
                (BACK_SCOPE, LOGIN): of(
                    "authorize", "an unknown scope", "only an unknown scope", "only offline_access",
                    "a scope of the service's own",
                ),
                ("400 invalid_scope", "201"): of("push", "an unknown scope"),
            },
        ),
    ),
    "Codes and refresh tokens": (
        Reason(
            "`redirect_uri` is required because the authorization request contained it (RFC 6749, section "
            "4.1.3). Without it the code does not match.",
            {("400 invalid_grant", "400 invalid_request"): of("code", "no redirect_uri")},
        ),
        Reason(
            "A verifier that does not match is `invalid_grant` (RFC 7636, section 4.6), whatever its format.",
            {
                ("400 invalid_grant", "400 invalid_request"): of(
                    "code", "a code_verifier too short", "a code_verifier too long", "a code_verifier with a space"
                )
            },
        ),
        Reason(
            "The response to a refresh can get lost. Within `refresh_grace` the previous token gets the same "
            "successor again. Any other reuse ends the token family (RFC 9700, section 4.14.2).",
            {("200", "400 invalid_grant"): of("refresh token", "the one before the last")},
        ),
    ),
    "Proofs of possession": (
        Reason(
            "An invalid or missing proof is `invalid_dpop_proof` (RFC 9449, section 5).",
            {
                ("400 invalid_dpop_proof", "400 invalid_grant"): of(
                    "proof", "none by a client that must", "shown before"
                ),
                ("400 invalid_dpop_proof", "200"): of("proof", "empty"),
                ("400 invalid_dpop_proof", "400 invalid_request"): of("push", "a proof of another key than dpop_jkt"),
            },
        ),
        Reason(
            "`iat` must be near even where the nonce is right; RFC 9449, section 4.3, lets a server go by either.",
            {
                ("400 invalid_dpop_proof", "200"): of("proof", "iat an hour ago", "iat in an hour"),
                ("400 invalid_dpop_proof", "400 use_dpop_nonce"): of("proof", "iat an hour ago, and no nonce"),
            },
        ),
        Reason(
            "The response to an unknown nonce contains a valid one (RFC 9449, section 8).",
            {("400 use_dpop_nonce", "400 invalid_dpop_proof"): of("proof", "nonce is a number")},
        ),
        Reason(
            "`dpop_jkt` is a SHA-256 thumbprint (RFC 9449, section 10): nothing else could ever match a proof.",
            {
                (BACK, LOGIN): of("authorize", "a dpop_jkt that is no thumbprint"),
                ("400 invalid_request", "201"): of("push", "a dpop_jkt that is no thumbprint"),
            },
        ),
    ),
    "Authorization requests": (
        Reason(
            "If the browser must not be redirected, the client gets no error, and RFC 6749, section 4.1.2.1, "
            "defines no code. `invalid_redirect_uri` and `invalid_client` belong to registration and to the "
            "token endpoint. Neither server redirects.",
            {
                NOWHERE: (
                    *of("redirect", "a client without redirect_uris", "another redirect_uri"),
                    *of("redirect", *(f"redirect_uri {how}" for how in (
                        "on a longer path", "with a slash after it", "with a query", "with a question mark",
                        "with a fragment", "with an empty fragment", "with a path parameter", "in another case",
                        "with its host in capitals", "with its port", "by http", "of a subdomain", "of a longer host",
                        "with a user", "with dots", "with encoded dots", "with dots and a parameter",
                        "with a space before it", "that is a script", "that is data", "that is a path",
                        "of another client",
                    ))),
                    *of("redirect", *(f"loopback {how}" for how in (
                        "on another path", "with another query", "without its query", "by name", "by another address",
                        "by https", "with a user",
                    ))),
                    *of("redirect", *(f"{fault}, and another redirect_uri" for fault in (
                        "bad scope", "bad response_type", "prompt none",
                    ))),
                ),
                ("400 invalid_request", "400 invalid_client"): of("redirect", "an unknown client_id"),
            },
        ),
        Reason(
            "The pushed request must be identified unambiguously before any redirect (RFC 9126, section 4).",
            {("400 invalid_request", BACK): of("authorize", "request_uri twice")},
        ),
        Reason(
            "A pushed request is the complete request (RFC 9126, section 4). If it is not found, there is no "
            "redirect_uri to return to, whatever else the query contains. Other request_uris are not "
            "supported.",
            {
                ("400 invalid_request", "303 to client: invalid_request_uri"): of(
                    "authorize", "a request_uri nobody pushed", "a used request_uri"
                ),
                ("400 invalid_request", "303 to client: request_uri_not_supported"): of(
                    "authorize", "a request_uri on the web", "a request_uri that is no URI"
                ),
                ("400 invalid_request", "303 to client: invalid_request_object"): of(
                    "authorize", "a request_uri of another client"
                ),
            },
        ),
        Reason(
            "A request_uri inside a pushed request is refused (RFC 9126, section 2.1), although the parameter"
            " is supported.",
            {("400 invalid_request", "400 request_uri_not_supported"): of("push", "a request_uri")},
        ),
        Reason(
            "The only response type is `code`, in this spelling (RFC 6749, section 3.1.1).",
            {("303 to client: unsupported_response_type", LOGIN): of("authorize", "response_type code code")},
        ),
        Reason(
            "The response modes are `query` and `form_post`, because a code in a fragment has no advantage. "
            "Any other mode is an invalid value (RFC 6749, section 4.1.2.1).",
            {
                (BACK, LOGIN): of("authorize", "response_mode fragment"),
                (BACK, "303 to client: unsupported_response_mode"): of(
                    "authorize", "response_mode query.jwt", "response_mode web_message", "an unknown response_mode"
                ),
                ("400 invalid_request", "400 unsupported_response_mode"): of("push", "an unknown response_mode"),
            },
        ),
        Reason(
            "The self-submitting form is a successful response to the browser, so its status is 200 (OAuth "
            "2.0 Form Post Response Mode, section 2).",
            {
                ("200 form to client: invalid_request", "400 form to client: invalid_request"): of(
                    "authorize", "an unknown prompt, answered by a form", "no challenge, answered by a form"
                )
            },
        ),
        Reason(
            "The base64url of a SHA-256 hash has 43 characters (RFC 7636, section 4.2), so no verifier could match.",
            {(BACK, LOGIN): of("authorize", "a challenge longer than a hash")},
        ),
        Reason(
            "Without openid it is a plain OAuth request, in which nonce has no meaning and is ignored (RFC "
            "6749, section 3.1).",
            {(LOGIN, BACK): of("authorize", "a nonce without openid")},
        ),
        Reason(
            "The account's login application has the session, so it handles `prompt=none` (OpenID Connect "
            "Core 1.0, section 3.1.2.1).",
            {(LOGIN, "303 to client: login_required"): of("authorize", "prompt none")},
        ),
        Reason(
            "`display` has four values (OpenID Connect Core 1.0, section 3.1.2.1).",
            {(BACK, LOGIN): of("authorize", "an unknown display")},
        ),
        Reason(
            "Both members of `claims` are optional (OpenID Connect Core 1.0, section 5.5), so a client can "
            "request none.",
            {(LOGIN, BACK): of("authorize", "claims of nothing")},
        ),
        Reason(
            "JSON is parsed strictly: duplicate names (RFC 8259, section 4) and deep nesting are refused.",
            {(BACK, LOGIN): of("authorize", "claims with a name twice", "claims nested deeply")},
        ),
    ),
    "Introspection, revocation and userinfo": (
        Reason(
            "Every value that is not a valid token available to the caller is inactive (RFC 7662, section 2.2).",
            {("200 inactive", "400 unsupported_token_type"): of("introspect", "a JWT of somebody's", "an ID token")},
        ),
        Reason(
            "Revoking a value that is not a token of this client changes nothing and returns 200 (RFC 7009, "
            "section 2.2). An error would reveal that a token of another client exists.",
            {
                ("200", "400 unsupported_token_type"): of("revoke", "a JWT of somebody's", "an ID token"),
                ("200", "400 invalid_request"): of(
                    "revoke", "the token of another client", "the refresh token of another client"
                ),
            },
        ),
        Reason(
            "Without a token in the Authorization header, the request is not authenticated. The response is "
            "401 with a challenge without an error (RFC 6750, section 3.1).",
            {
                ("401 invalid_token", "400 invalid_request"): of(
                    "userinfo", "nothing after Bearer", "a client's own credentials", "the token in the query",
                    "the token in the body as JSON",
                )
            },
        ),
        Reason(
            "A malformed token is `invalid_token` (RFC 6750, section 3.1).",
            {("401 invalid_token", "400 invalid_request"): of("userinfo", "two words after Bearer")},
        ),
        Reason(
            "The token of a machine is valid, but lacks openid, so the response is 403 (RFC 6750, section 3.1).",
            {("403 insufficient_scope", "401 invalid_token"): of("userinfo", "a machine's token")},
        ),
        Reason(
            "A bound token without its proof, or with the wrong scheme, is 401 with a DPoP or Bearer "
            "challenge (RFC 9449, sections 7.1 and 7.2).",
            {
                ("401 invalid_dpop_proof", "400 invalid_request"): of(
                    "userinfo", "a bound token as DPoP without a proof"
                ),
                ("401 invalid_token", "400 invalid_request"): of("userinfo", "a bound token as Bearer with its proof"),
            },
        ),
    ),
}  # fmt: skip

DIFFERENCES: dict[str, Difference] = {
    name: Difference(*pair, reason.text)
    for reasons in REASONS.values()
    for reason in reasons
    for pair, names in reason.pairs.items()
    for name in names
}


def page(sent: int) -> str:
    """The reference page, for so many requests that are sent to both."""
    differ = len(DIFFERENCES)
    text = (
        "# Differences from node oidc-provider\n\n"
        f"A test sends the same {sent} invalid requests to Gatepost and to "
        "node oidc-provider, an OpenID-certified server, with the same clients, secrets and keys. "
        f"Status and error code are the same for {sent - differ} of them. "
        f"This page lists the other {differ}, with the reasons for Gatepost's responses.\n\n"
        "`to client` is a redirect to the client with that error, and `form to client` is the same with a form. "
        "`login` means that the request is valid and that the browser is redirected to the login.\n"
    )
    for title, reasons in REASONS.items():
        text += f"\n## {title}\n"
        for reason in reasons:
            text += f"\n{reason.text}\n\n| request | Gatepost | oidc-provider |\n| --- | --- | --- |\n"
            for (ours, theirs), names in reason.pairs.items():
                text += "".join(f"| {name} | {ours} | {theirs} |\n" for name in names)
    return text


if __name__ == "__main__":
    from tests.differential.requests_to_send import REQUESTS

    PAGE.write_text(page(len(REQUESTS)), "utf-8")
