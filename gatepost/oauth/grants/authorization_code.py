"""Authorization codes: a client redeems the code that it received when a person consented.

RFC 6749, section 4.1.3, with PKCE (RFC 7636; OAuth 2.1) and codes that are bound to a DPoP key (RFC 9449, section 10).
The scope `offline_access` gives a refresh token (OIDC Core 1.0, section 11).
"""

from datetime import timedelta

from gatepost.core import ids
from gatepost.core.errors import Refusal
from gatepost.core.secrets import random_bytes
from gatepost.ledger.entries import Origin
from gatepost.ledger.record import record
from gatepost.oauth import consent_rows, family_rows, id_tokens, pkce, refresh_tokens, revocation, scopes
from gatepost.oauth.authorize import codes
from gatepost.oauth.authorize.codes import CodeBinding
from gatepost.oauth.client_authentication import AuthenticatedClient
from gatepost.oauth.consents import Consent
from gatepost.oauth.grants.grant_type import GrantType, LoadedGrant, TokenExtras
from gatepost.oauth.refresh_tokens import Family
from gatepost.oauth.service import Service
from gatepost.oauth.token_rules import CONSENT_RULES, Draft, GrantContext, TokenRequest
from gatepost.store.pending import Again
from gatepost.store.transaction import Tx


def load(
    tx: Tx, service: Service, authenticated: AuthenticatedClient, request: TokenRequest, origin: Origin
) -> LoadedGrant | Refusal:
    """The consent that the code stands for. A code that is used twice ends its consent (RFC 6749, section 4.1.2)."""
    if not request.parameter("code"):
        return Refusal("invalid_request", "code: missing", "code")
    account, code_id = authenticated.account, codes.code_id(request.parameter("code"))
    code = codes.load(tx, account.id, code_id)
    if code is None or code.client != authenticated.client.id:
        return _invalid_code("unknown, or issued to another client")
    if code.spent_at is not None:
        if revocation.end_consent(tx, account, code.consent, "code_reused", origin):
            data = {"client": authenticated.client.id, "what": "authorization_code"}
            record(tx, account, "oauth.token.reused", origin, code.consent, data)
        return _invalid_code("used before; everything issued for it is revoked")
    if tx.at >= code.expires_at:
        return _invalid_code("expired")
    binding = code.binding()
    mismatch = check_binding(
        binding, redirect_uri=request.parameter("redirect_uri"), verifier=request.parameter("code_verifier"),
        thumbprint=request.thumbprint,
    )  # fmt: skip
    if mismatch is not None:
        return mismatch
    if not binding.challenge and (authenticated.client.require_pkce or account.strict):  # which may be new
        return _invalid_code("its authorization had no code_challenge, which this client requires now")
    consent = consent_rows.load(tx, account.id, code.consent, service.keys.data)
    if consent is None or not consent.is_active(tx.at):
        return _invalid_code("the consent has ended")

    def complete(draft: Draft) -> TokenExtras:
        if not codes.spend(tx, account.id, code_id):
            raise Again("another request redeemed the code")
        extras = TokenExtras(id_token_claims=id_tokens.claims(tx, service, draft, consent, binding.nonce))
        # OIDC Core 1.0, section 11: offline_access asks for a refresh token.
        if scopes.OFFLINE not in consent.details.scope or authenticated.client.grant("refresh_token") is None:
            return extras
        token = refresh_tokens.first(ids.new("fam"), random_bytes(32))
        ends_at = tx.at + timedelta(seconds=account.seconds("refresh_token_max_age"))
        family_rows.add(tx,
            Family(
                account.id, token.family, authenticated.client.id, consent.id, token.number,
                refresh_tokens.leaf(token), request.thumbprint, tx.at,
                refresh_tokens.idle_end(account, authenticated.client, ends_at, tx.at), ends_at,
            )
        )  # fmt: skip
        members = {"refresh_token": refresh_tokens.serialize(service.keys.refresh, token)}
        return TokenExtras(members, {"family": token.family}, extras.id_token_claims)

    return LoadedGrant(consent_context(consent), complete)


def check_binding(binding: CodeBinding, *, redirect_uri: str, verifier: str, thumbprint: str) -> Refusal | None:
    """Why a redemption does not match the authorization request that the code was issued for."""
    if redirect_uri != binding.redirect_uri:
        return Refusal("invalid_grant", "redirect_uri: must be the one of the authorization request", "redirect_uri")
    if not binding.challenge and verifier:  # RFC 9700, section 4.8.2: the challenge may have been stripped
        return Refusal("invalid_grant", "code_verifier: the authorization had no code_challenge", "code_verifier")
    if binding.challenge and not verifier:
        return Refusal("invalid_grant", "code_verifier: missing", "code_verifier")
    if binding.challenge and not pkce.matches(verifier, binding.challenge):
        return Refusal("invalid_grant", "code_verifier: does not match the code_challenge", "code_verifier")
    if binding.thumbprint and binding.thumbprint != thumbprint:  # RFC 9449, section 10
        return not_bound_to("the code", thumbprint)
    return None


def not_bound_to(what: str, thumbprint: str) -> Refusal:
    """The refusal of a code or token that is bound to a key, sent with a proof of another key or with none."""
    problem = "is bound to another key" if thumbprint else "is bound to a key; send a proof"
    return Refusal("invalid_grant", f"DPoP: {what} {problem}", "DPoP")


def consent_context(consent: Consent) -> GrantContext:
    """The limits that a consent sets. The ledger entry has the consent's id instead of the person's `sub`."""
    details = consent.details
    return GrantContext(
        consent.subject, tuple(details.scope), tuple(details.resources), claims=consent.authentication(),
        entry_data={"consent": consent.id},
    )  # fmt: skip


def _invalid_code(reason: str) -> Refusal:
    return Refusal("invalid_grant", f"code: {reason}", "code")


GRANT = GrantType(CONSENT_RULES, load, parameters=("code", "redirect_uri", "code_verifier"))
