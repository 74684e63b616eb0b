"""The webhook area: endpoints, subscriptions, deliveries and the worker that makes them. Never imports `oauth`."""
