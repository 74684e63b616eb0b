"""A deterministic simulation of the whole service: a seed determines the whole history."""
