"""Real servers for tests: a scripted language model, and this application itself."""

# Where the tests' people live: not where the server is (`TIME_ZONE` in config/settings/test.py), nor in UTC.
ZONE_OF_PEOPLE = "America/Los_Angeles"
