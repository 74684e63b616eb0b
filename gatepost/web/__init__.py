"""The public listener: ASGI in, values to the units, answers out."""
