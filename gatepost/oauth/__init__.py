"""The authorization area: clients, scopes, grants, tokens and what ends them. Never imports `webhooks`."""
