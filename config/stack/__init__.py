"""One machine, one command: the servers that come in wheels, and the supervisor that runs everything beside them."""


class StackError(Exception):
    """Something the person can put right; the message is one sentence that says what it is and what to do."""


# The setting that says how many web processes share one address.
WEB_PROCESSES = "WEB_PROCESSES"
