"""What is in the way, for the person at the terminal."""


class StackError(Exception):
    """Something the person can put right; the message is one sentence that says what it is and what to do."""
