"""Access tokens as they are sent to us: in the Authorization header, as Bearer or with a DPoP proof."""

import msgspec

from gatepost.core.errors import Refusal
from gatepost.oauth import dpop
from gatepost.oauth.access_tokens import PresentedToken
from gatepost.oauth.dpop import Proof
from gatepost.web.context import Context
from gatepost.web.requests import Request
from gatepost.web.responses import Header, Reply, challenge, refuse


def read_token(context: Context, request: Request) -> PresentedToken | None:
    """What was sent, if anything was. RFC 6750, section 2.1; RFC 9449, section 7.1."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if not token or kind.lower() not in ("bearer", "dpop"):
        return None
    if kind.lower() == "bearer":
        return PresentedToken(token)
    found = proof(context, request, token)
    if found is None:
        found = Refusal("invalid_dpop_proof", "DPoP: send a proof in the DPoP header", "DPoP")
    if isinstance(found, Refusal):
        found = msgspec.structs.replace(found, status_override=401)
    return PresentedToken(token, found)


def proof(context: Context, request: Request, access_token: str | None = None) -> Proof | Refusal | None:
    """The proof that came with a request, checked against it; None when none came."""
    text = request.headers.get("dpop")
    if text is None:
        return None
    return dpop.check(
        text, method=request.method, url=f"{request.base or context.service.base_url}{request.path}",
        key=context.service.keys.nonce, at=context.now(), access_token=access_token,
    )  # fmt: skip


def is_nonce_challenge(refusal: Refusal) -> bool:
    """Whether all that is wrong is the nonce of the proof. RFC 9449, section 8.

    Endpoints that authenticate clients answer such a challenge before they authenticate. It depends on the proof alone,
    so it reveals nothing about the client, and the client can send the same assertion again with the nonce.
    """
    return refusal.code == "use_dpop_nonce"


def nonce(context: Context) -> Header:
    return "dpop-nonce", dpop.nonce(context.service.keys.nonce, context.now())


def challenged(context: Context, request: Request, refusal: Refusal, scope: str) -> Header:
    """WWW-Authenticate, in the scheme that was used."""
    by_proof = request.headers.get("authorization", "")[:5].lower() == "dpop "
    return challenge(refusal, context.service.base_url, scope, "DPoP" if by_proof else "Bearer")


def unauthenticated(context: Context, request: Request, scope: str) -> Reply:
    why = Refusal("invalid_token", "send an access token: Authorization: Bearer …")
    return refuse(request.path, why, challenged(context, request, Refusal("invalid_token", ""), scope))
