"""The listeners: all public routes in `app.py`, those of the operations plane in `ops/`, and the OpenAPI document."""
