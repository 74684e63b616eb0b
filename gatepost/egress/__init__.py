"""Requests that leave the service, to addresses that the operator allows: webhooks and the key sets of others."""
