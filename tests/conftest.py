"""Settings of every test: properties have no time limit, for no test asserts a time, and draw the same examples."""

from hypothesis import HealthCheck, settings

settings.register_profile("datamix", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("datamix")
