"""How Hypothesis runs here: nothing is timed in a test, and a busy machine is no reason to fail."""

from hypothesis import HealthCheck, settings

settings.register_profile("gatepost", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gatepost")
