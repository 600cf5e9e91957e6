"""The agent loop: runs a model with its tools and yields the events of an answer."""
