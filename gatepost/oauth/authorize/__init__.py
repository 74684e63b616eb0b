"""Authorization requests and the handoff to the account's own login application."""
