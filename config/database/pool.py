"""A pool of connections that is of use again from the moment in which PostgreSQL is.

psycopg's own was measured to fail requests after a restart, with the database back: it pauses ever longer after each
dead connection that it finds, so that four of them use up a request's five seconds; and it doubles the time between its
tries to connect, so that after ten seconds without a database three requests in a row waited those five in vain.
"""

import time
from typing import Any

from psycopg import Connection, Error
from psycopg_pool import ConnectionPool

# A try to connect that fails is repeated after this, for as long as it takes.
RETRY_SECONDS = 1.0
# Between one dead connection and the next try to be given a live one. What makes connections that are dead at once (a
# proxy before a database that is away) must not keep a processor busy.
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5


class RecoveringPool(ConnectionPool[Connection[Any]]):
    """Gives nobody a dead connection, and drops all dead ones as soon as it has come upon one."""

    def __init__(self, **options: Any) -> None:
        # The pool gives up on connecting, and then `check` has it begin anew: without that it would wait for a client.
        recovering = {"reconnect_timeout": RETRY_SECONDS, "reconnect_failed": ConnectionPool.check}
        super().__init__(**{**recovering, **options})

    def getconn(self, timeout: float | None = None) -> Connection[Any]:
        """Raises `PoolTimeout` after `timeout` seconds, by default the pool's own."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = FIRST_PAUSE_SECONDS
        while True:
            connection = super().getconn(deadline - time.monotonic())
            try:
                self.check_connection(connection)
            except Error:
                # Whatever cut this one off has probably cut off the others, too.
                self.putconn(connection)
                self.check()
            except BaseException:
                self.putconn(connection)
                raise
            else:
                return connection
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
