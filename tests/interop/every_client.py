"""What must come of the flows of a client library, whichever it is: each one's own test runs these with its script.

The libraries are as they were published. All they are told of the service is its issuer; the rest they discover.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, KeyParameters, OKPKey, RSAKey

from gatepost.oauth import account_admin
from tests.interop import npm
from tests.interop.person import altered, sign_in
from tests.login import CALLBACK, CLAIMS, Platform, decode_jwt
from tests.service import Client, Service

SCOPE = "openid offline_access things:read"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


@dataclass(frozen=True)
class Way:
    """How a client authenticates, asks and is answered."""

    method: str = "client_secret_basic"
    key: str = ""  # the algorithm that it authenticates with
    dpop: str = ""  # the algorithm of the key that its tokens are bound to
    par: bool = False
    mode: str = "query"
    alg: str = "RS256"  # of its ID tokens


KEY = "private_key_jwt"
WAYS = {
    "secret-in-header": Way(),
    "secret-in-form": Way("client_secret_post", mode="form_post", alg="ES256"),
    "secret-pushed": Way(par=True),
    "key": Way(KEY, "RS256"),
    "key-pushed": Way(KEY, "ES256", par=True, alg="ES256"),
    "key-pushed-bound": Way(KEY, "PS256", "ES256", par=True, mode="form_post", alg="ES256"),
    "secret-bound": Way(dpop="RS256"),
    "public": Way("none"),
    "public-pushed": Way("none", par=True, mode="form_post"),
    "public-bound": Way("none", dpop="ES256", alg="ES256"),
    "ed25519": Way(KEY, "Ed25519", "Ed25519", par=True, alg="EdDSA"),
}
MACHINES = {
    "secret-in-header": Way(),
    "secret-in-form": Way("client_secret_post"),
    "key": Way(KEY, "ES256"),
    "key-bound": Way(KEY, "PS256", "PS256"),
    "secret-bound": Way(dpop="ES256"),
}


def ways(table: dict[str, Way]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", table.values(), ids=table)


class EveryClient:
    """The tests. `script` is what speaks for the library."""

    script: str

    @pytest.fixture
    def platform(self, sqlite_gatepost: Service, account_name: str) -> Platform:
        return Platform(sqlite_gatepost, account_name)

    def run(self, platform: Platform, scenario: str, browse: npm.Browse | None = None, **asked: Any) -> dict[str, Any]:
        whole = {"scenario": scenario, "issuer": platform.url, "redirect_uri": CALLBACK, "discovery": "oidc"} | asked
        return npm.run_scenario(self.script, whole, browse or (lambda url: sign_in(platform, url)))

    @pytest.mark.parametrize("discovery", ["oidc", "oauth2"])
    def test_the_issuer_is_discovered(self, platform: Platform, discovery: str) -> None:
        client = known(platform.client)
        metadata = self.run(platform, "discovered", discovery=discovery, **client)
        assert metadata["issuer"] == platform.url
        assert ("userinfo_endpoint" in metadata) == (discovery == "oidc")

    def test_a_client_registers_itself_and_signs_a_person_in(self, platform: Platform) -> None:
        """Authenticate with the default method of openid-client, independent of the registered one."""
        metadata = {
            "redirect_uris": [CALLBACK], "client_name": "Registered", "scope": "openid things:read",
            "grant_types": ["authorization_code"], "token_endpoint_auth_method": "client_secret_post",
            "some_extension": "is ignored",
        }  # fmt: skip
        result = self.run(platform, "registered", token=platform.admin, metadata=metadata, scope="openid things:read")
        assert result["client"]["client_name"] == "Registered"
        assert result["claims"]["aud"] == result["client"]["client_id"]

    @ways(WAYS)
    def test_sign_in_of_a_person(self, platform: Platform, way: Way) -> None:
        result = self.signed_in(platform, way, SCOPE)
        assert result["header"]["alg"] == way.alg
        assert result["claims"]["sub"] == f"{platform.account}.ada"
        assert result["userinfo"] == {"sub": result["claims"]["sub"]}
        again = decode_jwt(result["second"]["id_token"])[1]
        for name in ("iss", "sub", "aud", "auth_time"):  # OIDC Core 1.0, section 12.2
            assert again[name] == result["claims"][name]
        challenge = result["userinfo_later"]["challenges"][0]
        assert result["userinfo_later"]["type"] == "WWWAuthenticateChallengeError"
        assert challenge["scheme"] == ("dpop" if way.dpop else "bearer")
        assert challenge["parameters"]["error"] == "invalid_token"

    @ways({name: WAYS[name] for name in ("secret-in-header", "key-pushed-bound", "public")})
    def test_plain_oauth_without_openid(self, platform: Platform, way: Way) -> None:
        result = self.signed_in(platform, way, "offline_access things:read", discovery="oauth2")
        assert "id_token" not in result["first"]

    def test_fapi2(self, platform: Platform) -> None:
        way = Way(KEY, "ES256", "ES256", par=True, alg="ES256")
        client = defined(platform, way)
        service = platform.gatepost.opened.service

        for other in (platform.first, platform.client):  # which have secrets
            platform.gatepost.cli("client", "disable", other.id)
        change = {"profile": "fapi2"}
        platform.gatepost.opened.store.run_now(lambda tx: account_admin.change(tx, service, platform.name, change))
        result = self.run(platform, "signed_in", scope=SCOPE, **client)
        assert result["first"]["token_type"] == "dpop"
        assert result["second"]["refresh_token"] == result["first"]["refresh_token"]
        assert result["introspected"]["cnf"]["jkt"]

    def signed_in(self, platform: Platform, way: Way, scope: str, **asked: Any) -> dict[str, Any]:
        """Through the whole of it, with all that does not depend on an ID token checked."""
        result = self.run(platform, "signed_in", scope=scope, **defined(platform, way), **asked)
        for made in (result["first"], result["second"]):
            assert made["scope"] == scope
            assert made["token_type"] == ("dpop" if way.dpop else "bearer")
            assert made["expires_in"] == 3600
        assert result["second"]["access_token"] != result["first"]["access_token"]
        assert result["second"]["refresh_token"] != result["first"]["refresh_token"]
        assert result["refreshed_later"]["error"] == "invalid_grant"
        if way.method != "none":
            found = result["introspected"]
            assert found["active"] is True
            assert found["scope"] == scope
            assert found["token_type"].lower() == result["first"]["token_type"]
            assert ("cnf" in found) == bool(way.dpop)
            assert result["introspected_refresh_token"]["active"] is True
            assert result["introspected_later"] == {"active": False}
        return result

    def test_claims_of_a_scope_are_in_userinfo_and_in_the_id_token_of_clients_that_want_them(
        self, platform: Platform
    ) -> None:
        scope = "openid offline_access profile"
        result = self.run(platform, "signed_in", scope=scope, **known(platform.define(id_token_claims=True)))
        for found in (result["claims"], result["userinfo"]):
            assert found["name"] == CLAIMS["name"]
            assert "email" not in found
        result = self.run(platform, "signed_in", scope=scope, **known(platform.client))
        assert result["userinfo"]["name"] == CLAIMS["name"]
        assert "name" not in result["claims"]

    def test_one_resource_of_several_is_named(self, platform: Platform) -> None:
        """RFC 8707: the resource is named in the authorization request and need not be repeated."""
        platform.define_scope(name="files:read", resource=f"{platform.api}/files")
        client = platform.define(scope=f"{SCOPE} profile files:read")
        asked = known(client, parameters={"resource": platform.api})
        result = self.run(platform, "signed_in", scope=f"{SCOPE} profile files:read", **asked)
        assert result["first"]["scope"] == f"{SCOPE} profile"
        assert decode_jwt(result["first"]["access_token"])[1]["aud"] == [platform.api, platform.url]
        assert result["userinfo"]["name"] == CLAIMS["name"]

    @ways(MACHINES)
    def test_a_machine_gets_a_token(self, platform: Platform, way: Way) -> None:
        client = defined(platform, way, grant_types=["client_credentials"], scope="things:read", redirect_uris=[])
        result = self.run(platform, "machine", scope="things:read", **client)
        assert result["made"]["token_type"] == ("dpop" if way.dpop else "bearer")
        assert result["introspected"]["active"] is True
        assert result["introspected"]["aud"] == platform.api
        assert result["introspected"]["sub"] == client["client_id"]

    @ways({name: MACHINES[name] for name in ("secret-in-header", "key-bound")})
    def test_a_token_is_used_at_an_operation(self, platform: Platform, way: Way) -> None:
        client = defined(platform, way, grant_types=["client_credentials"], scope="gatepost:clients", redirect_uris=[])
        body = {"client_id": client["client_id"]}
        result = self.run(platform, "operated", scope="gatepost:clients", body=body, **client)
        assert result["status"] == 200
        if way.dpop:
            assert result["unbound"]["status"] == 401
            assert result["unbound"]["challenges"][0]["parameters"]["error"] == "invalid_token"

    def test_a_token_is_exchanged(self, platform: Platform) -> None:
        served = defined(platform, Way(), grant_types=[EXCHANGE], scope="things:read", serves=[platform.api])
        parameters = {
            "subject_token": platform.tokens()["access_token"], "subject_token_type": ACCESS_TOKEN,
            "scope": "things:read",
        }  # fmt: skip
        made = self.run(platform, "exchanged", **(served | {"parameters": parameters}))
        assert made["issued_token_type"] == ACCESS_TOKEN
        assert decode_jwt(made["access_token"])[1]["act"] == {"sub": served["client_id"]}

    # --- refusals are the library's own errors

    def test_a_wrong_secret(self, platform: Platform) -> None:
        client = known(Client(platform.client.id, "not the secret"))
        result = self.run(platform, "machine_refused", scope="things:read", **client)
        assert result["type"] == "WWWAuthenticateChallengeError"
        assert result["status"] == 401
        assert [each["scheme"] for each in result["challenges"]] == ["basic"]

    def test_a_scope_that_is_not_granted(self, platform: Platform) -> None:
        client = defined(platform, Way(), grant_types=["client_credentials"], scope="things:read", redirect_uris=[])
        check_body_error(self.run(platform, "machine_refused", scope="things:write", **client), "invalid_scope")

    def test_a_pushed_request_with_an_unknown_scope(self, platform: Platform) -> None:
        result = self.run(platform, "sign_in_refused", scope="openid nothing", par=True, **known(platform.client))
        check_body_error(result, "invalid_scope")

    def test_a_request_with_an_unknown_scope(self, platform: Platform) -> None:
        result = self.run(platform, "sign_in_refused", scope="openid nothing", **known(platform.client))
        check_answered_error(result, "invalid_scope")

    @pytest.mark.parametrize("mode", ["query", "form_post"])
    def test_a_person_who_denies_the_request(self, platform: Platform, mode: str) -> None:
        output = {"sub": None, "scope": None, "error": "access_denied", "error_description": "They said no"}
        result = self.run(
            platform, "sign_in_refused", lambda url: sign_in(platform, url, **output), scope=SCOPE,
            **known(platform.client, parameters={"response_mode": mode}),
        )  # fmt: skip
        check_answered_error(result, "access_denied")
        assert result["error_description"] == "They said no"

    def test_a_wrong_code(self, platform: Platform) -> None:
        result = self.changed_on_the_way(platform, code="not-a-code")
        check_body_error(result, "invalid_grant")

    @pytest.mark.parametrize("issuer", [None, "https://other.example"], ids=["missing", "another"])
    def test_the_issuer_of_the_answer_is_checked(self, platform: Platform, issuer: str | None) -> None:
        """Missing it is an error for the library because discovery says that it is always there (RFC 9207)."""
        result = self.changed_on_the_way(platform, iss=issuer)
        assert result["code"] == "OAUTH_INVALID_RESPONSE"

    def changed_on_the_way(self, platform: Platform, **changes: str | None) -> dict[str, Any]:
        def browse(url: str) -> dict[str, Any]:
            return altered(sign_in(platform, url), **changes)

        return self.run(platform, "sign_in_refused", browse, scope=SCOPE, **known(platform.client))

    def test_a_wrong_verifier(self, platform: Platform) -> None:
        result = self.run(platform, "sign_in_refused", scope=SCOPE, verifier="w" * 43, **known(platform.client))
        check_body_error(result, "invalid_grant")

    def test_what_was_used_is_not_used_again(self, sqlite_gatepost: Service, account_name: str) -> None:
        platform = Platform(sqlite_gatepost, account_name, "refresh_grace=0")
        result = self.run(platform, "reuse_refused", scope=SCOPE, **known(platform.client))
        for name in ("refresh_token", "successor", "code"):
            check_body_error(result[name], "invalid_grant")


def check_body_error(told: dict[str, Any], error: str) -> None:
    assert told["type"] == "ResponseBodyError", told
    assert told["status"] == 400
    assert told["error"] == error
    assert told["error_description"]


def check_answered_error(told: dict[str, Any], error: str) -> None:
    assert told["type"] == "AuthorizationResponseError", told
    assert told["error"] == error
    assert told["error_description"]


def known(client: Client, **asked: Any) -> dict[str, Any]:
    """The configuration of an application: a client with a secret."""
    return {"client_id": client.id, "secret": client.secret, "method": "client_secret_basic"} | asked


def defined(platform: Platform, way: Way, **members: Any) -> dict[str, Any]:
    """A client that goes this way, as its application knows it."""
    key = made_key(way.key) if way.key else None
    if key is not None:
        members["jwks"] = {"keys": [key.as_dict(private=False)]}
    client = platform.define(
        token_endpoint_auth_method=way.method, id_token_signed_response_alg=way.alg,
        dpop_bound_access_tokens=bool(way.dpop), **members,
    )  # fmt: skip
    return {
        "client_id": client.id,
        "secret": client.secret,
        "method": way.method,
        "key": key and {"alg": way.key, "jwk": key.as_dict(private=True)},
        "dpop": way.dpop,
        "par": way.par,
        "parameters": {"response_mode": way.mode},
        "metadata": {"id_token_signed_response_alg": way.alg},
    }


def made_key(alg: str) -> Key:
    parameters: KeyParameters = {"kid": f"the client's {alg}"}
    if alg == "ES256":
        return ECKey.generate_key("P-256", parameters)
    if alg == "Ed25519":
        return OKPKey.generate_key("Ed25519", parameters)
    return RSAKey.generate_key(2048, parameters)
