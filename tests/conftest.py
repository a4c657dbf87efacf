"""Settings of every test: hypothesis has no deadline, for no test asserts a time, and draws the same examples each run."""

from hypothesis import settings

settings.register_profile("datamix", deadline=None, derandomize=True)
settings.load_profile("datamix")
