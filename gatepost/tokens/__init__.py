"""Tokens: what is in them, who gets them, and how a foreign one is read."""
