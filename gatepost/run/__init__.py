"""The processes of the service, and the composition root that puts them together."""
