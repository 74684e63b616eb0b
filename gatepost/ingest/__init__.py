"""Sources of published events: HTTP and NATS."""
