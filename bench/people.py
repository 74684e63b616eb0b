"""Tokens with a consent, for the benchmarks of refresh and introspection: one consent and many families."""

from dataclasses import replace
from datetime import timedelta

from bench.load import Target
from bench.ours import MEDIA
from gatepost.core import ids
from gatepost.core.secrets import random_bytes
from gatepost.oauth import family_rows, refresh_tokens
from gatepost.oauth.refresh_tokens import Family
from gatepost.store.transaction import Tx
from tests.login import Platform, decode_jwt
from tests.service import Service

SCOPE = "offline_access things:read"


class People:
    """An account with a client that has a consent, and an API that introspects its tokens."""

    def __init__(self, gatepost: Service) -> None:
        self._gatepost = gatepost
        self._platform = platform = Platform(gatepost, "people")
        self._tokens = platform.tokens(platform.auth_request(scope=SCOPE, nonce=None))
        serving = gatepost.define_client(platform.admin, scope="things:read", serves=[platform.api])
        headers = MEDIA | {"Authorization": serving.basic}
        self.introspection = Target(
            f"{gatepost.url}/oauth/introspect", headers, f"token={self._tokens['access_token']}".encode()
        )

    def refreshing(self, count: int) -> Target:
        """Return a refresh request with this many unused refresh tokens."""
        store, service = self._gatepost.opened.store, self._gatepost.opened.service
        shown = refresh_tokens.read(service.keys.refresh, self._tokens["refresh_token"])
        if shown is None:
            raise RuntimeError("this is not a refresh token")
        first, account = shown, decode_jwt(self._tokens["access_token"])[1]["account"]

        def more(tx: Tx) -> list[str]:
            known = family_rows.load(tx, account, first.family)
            if known is None:
                raise RuntimeError("there is no family to copy")
            return [refresh_tokens.serialize(service.keys.refresh, _another(tx, known)) for _ in range(count)]

        headers = MEDIA | {"Authorization": self._platform.client.basic}
        target = Target(f"{self._gatepost.url}/oauth/tokens", headers, b"grant_type=refresh_token&refresh_token=")
        return replace(target, chain=tuple(store.run_now(more)))


def _another(tx: Tx, known: Family) -> refresh_tokens.RefreshToken:
    token = refresh_tokens.first(ids.new("fam"), random_bytes(32))
    ends_at = tx.at + timedelta(days=1)
    family_rows.add(
        tx,
        known._replace(
            id=token.family, number=0, leaf=refresh_tokens.leaf(token), idle_ends_at=ends_at, ends_at=ends_at
        ),
    )
    return token
