"""Where events of the platform come from: HTTP and NATS."""
