"""Deliveries: their states, their plan, what happens after an attempt, signing, sending."""
