"""oauth4webapi of npm, unchanged, completes its flows, and guards an API with our tokens."""

from typing import Any

from tests.interop.every_client import MACHINES, EveryClient, Way, defined, ways
from tests.login import Platform


class TestOauth4webapi(EveryClient):
    script = "oauth4webapi.mjs"

    def test_the_operations_are_discovered_as_a_resource(self, platform: Platform) -> None:
        result = self.run(platform, "resource_discovered")
        assert result["authorization_servers"] == [platform.url]

    @ways({name: MACHINES[name] for name in ("secret-in-header", "key-bound")})
    def test_an_api_that_it_guards_takes_our_token(self, platform: Platform, way: Way) -> None:
        members: dict[str, Any] = {"grant_types": ["client_credentials"], "scope": "things:read", "redirect_uris": []}
        client = defined(platform, way, **members)
        result = self.run(platform, "guarded", scope="things:read", audience=platform.api, **client)
        assert result["claims"]["scope"] == "things:read"
        assert result["elsewhere"]["code"] == "OAUTH_JWT_CLAIM_COMPARISON_FAILED"
        assert ("stolen" in result) == bool(way.dpop)  # a bound token without its proof
