"""The listeners: every public URL in `app.py`, those of the operations plane in `ops/`, and the OpenAPI document."""
