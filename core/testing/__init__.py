"""Real servers for tests: a language model's protocol with scripted answers, and this application itself."""
