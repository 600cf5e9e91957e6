"""Real servers for tests: a scripted language model, and this application itself."""
