"""The base of all other folders: time, ids, errors, secrets, JSON, JOSE, logs and metrics. Imports none of them."""
