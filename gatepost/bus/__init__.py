"""Buses that events of the platform come from. Each is an extra, and runs beside the delivery worker."""
