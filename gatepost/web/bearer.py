"""Access tokens in requests: the Authorization header with Bearer or DPoP, and the challenge if one is missing."""

from collections.abc import Mapping

import msgspec

from gatepost.core.errors import Refusal
from gatepost.oauth import dpop
from gatepost.oauth.access_tokens import PresentedToken
from gatepost.oauth.dpop import Proof
from gatepost.web.context import Context
from gatepost.web.requests import FORM, Request, parameters
from gatepost.web.responses import Header, Reply, challenge, refuse


def read_token(context: Context, request: Request) -> PresentedToken | None:
    """The access token of a request, if it has one. RFC 6750, section 2.1; RFC 9449, section 7.1."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if not token or scheme.lower() not in ("bearer", "dpop"):
        return None
    if scheme.lower() == "bearer":
        return PresentedToken(token)
    checked = proof(context, request, token)
    if checked is None:
        checked = Refusal("invalid_dpop_proof", "DPoP: send a proof in the DPoP header", "DPoP")
    if isinstance(checked, Refusal):
        checked = msgspec.structs.replace(checked, status_override=401)
    return PresentedToken(token, checked)


def read_token_in_form(context: Context, request: Request) -> PresentedToken | Refusal | None:
    """The access token in the header or in a form body, for endpoints that accept both. RFC 6750, section 2.2."""
    in_header = read_token(context, request)
    if request.method != "POST" or request.media_type() != FORM:
        return in_header
    sent = parameters(request.body)
    if isinstance(sent, Refusal):
        return sent
    if "access_token" not in sent:
        return in_header
    if "authorization" in request.headers:
        return Refusal("invalid_request", "access_token: send the token once, in the header or in the body")
    return PresentedToken(sent["access_token"][0])


def proof(context: Context, request: Request, access_token: str | None = None) -> Proof | Refusal | None:
    """The DPoP proof of a request, or why it is invalid. None if there is no proof."""
    text = request.headers.get("dpop")
    if text is None:
        return None
    urls = [f"{base}{request.path}" for base in request.bases or (context.service.base_url,)]
    return dpop.check(
        text, method=request.method, urls=urls,
        key=context.service.keys.nonce, at=context.now(), access_token=access_token,
    )  # fmt: skip


def is_nonce_challenge(refusal: Refusal) -> bool:
    """Whether only the nonce of the proof is wrong. RFC 9449, section 8.

    Endpoints that authenticate clients send this challenge before they authenticate. It depends on the proof alone, so
    it reveals nothing about the client, and the client can send the same assertion again with the nonce.
    """
    return refusal.code == "use_dpop_nonce"


def nonce(context: Context) -> Header:
    """The header with the nonce for the next proof. RFC 9449, section 8.2."""
    return "dpop-nonce", dpop.nonce(context.service.keys.nonce, context.now())


def needs_nonce(headers: Mapping[str, str], reply: Reply) -> bool:
    """Whether a response has a nonce: in every one to a proof (RFC 9449, section 8.2), and if a proof is missing."""
    return "dpop" in headers or reply.log_fields.error == "invalid_dpop_proof"


def challenged(context: Context, request: Request, refusal: Refusal, scope: str) -> Header:
    """The header WWW-Authenticate, with the scheme of the request."""
    is_dpop = request.headers.get("authorization", "")[:5].lower() == "dpop "
    return challenge(refusal, context.service.base_url, scope, "DPoP" if is_dpop else "Bearer")


def unauthenticated(context: Context, request: Request, scope: str) -> Reply:
    """The response to a request without an access token. RFC 6750, section 3.1: the challenge has no error code."""
    refusal = Refusal("invalid_token", "send an access token: Authorization: Bearer TOKEN")
    return refuse(request.path, refusal, challenged(context, request, Refusal("invalid_token", ""), scope))
