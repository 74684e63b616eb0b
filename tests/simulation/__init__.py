"""A deterministic simulation of the whole service: one seed is one history."""
