"""The agent loop: a model, the tools it is given, and the events that come of an answer."""
