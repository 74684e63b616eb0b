"""Sources of published events: HTTP, NATS and Kafka."""
