"""A client stays signed in for a person. RFC 6749, section 6; what the token itself means is told by `families`."""

from gatepost.oauth.token_rules import NARROWING, grant_is_configured, key_is_shown, scopes_are_agreed

RULES = (key_is_shown, grant_is_configured, scopes_are_agreed, *NARROWING)
