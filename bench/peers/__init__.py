"""Other token services, each run for a while with one client that may ask for tokens."""
