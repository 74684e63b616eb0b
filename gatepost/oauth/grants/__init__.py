"""The grant types of the token endpoint. A grant type is one file in this folder and one line in GRANTS."""

from gatepost.oauth.client_grants import JWT_BEARER, TOKEN_EXCHANGE
from gatepost.oauth.grants import authorization_code, client_credentials, jwt_bearer, refresh_token, token_exchange
from gatepost.oauth.grants.grant_type import GrantType

# OAuth 2.1 has no password grant, and neither has Gatepost.
GRANTS: dict[str, GrantType] = {
    "client_credentials": client_credentials.GRANT,
    "authorization_code": authorization_code.GRANT,
    "refresh_token": refresh_token.GRANT,
    JWT_BEARER: jwt_bearer.GRANT,
    TOKEN_EXCHANGE: token_exchange.GRANT,
}
