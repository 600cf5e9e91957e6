"""What an operator asks of an installation: which settings there are, and what is wrong with it."""
