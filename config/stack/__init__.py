"""`make up`: the servers that come in wheels, and the supervisor of all processes."""


class StackError(Exception):
    """A problem that the user can fix; the message is one sentence that says what it is and what to do."""


# The setting for the number of web processes that share one address.
WEB_PROCESSES = "WEB_PROCESSES"
