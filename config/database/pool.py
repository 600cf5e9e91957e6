"""A pool of connections that is of use again from the moment in which PostgreSQL is.

psycopg's own was measured to fail requests after a restart, with the database back: it pauses ever longer after each
dead connection that it finds, so that four of them use up a request's five seconds; and it doubles the time between its
tries to connect, so that after ten seconds without a database three requests in a row waited those five in vain.
"""

import select
import time
from typing import Any

from psycopg import Error
from psycopg_pool import ConnectionPool

from config.database.pipelined import PipelinedConnection

# For so long a connection that has answered is taken to be alive as long as its socket says nothing else. A server that
# ends says so at once; only one that vanishes with its machine or the network does not, and is not back so soon.
TRUSTED_SECONDS = 1.0
# A try to connect that fails is repeated after this, for as long as it takes.
RETRY_SECONDS = 1.0
# Between one dead connection and the next try to be given a live one. What makes connections that are dead at once (a
# proxy before a database that is away) must not keep a processor busy.
FIRST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.5


class Checked(PipelinedConnection):
    """`answered_at`: when it was last known to be alive, by the monotonic clock."""

    answered_at = float("-inf")


class RecoveringPool(ConnectionPool[Checked]):
    """Gives nobody a dead connection, and drops all dead ones as soon as it has come upon one.

    Of the living it gives the one that was used last, where psycopg's own gives each in turn.
    """

    def __init__(self, **options: Any) -> None:
        # The pool gives up on connecting, and then `check` has it begin anew: without that it would wait for a client.
        recovering = {"reconnect_timeout": RETRY_SECONDS, "reconnect_failed": ConnectionPool.check}
        super().__init__(**{"connection_class": Checked, **recovering, **options})

    def getconn(self, timeout: float | None = None) -> Checked:
        """Raises `PoolTimeout` after `timeout` seconds, by default the pool's own."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = FIRST_PAUSE_SECONDS
        while True:
            connection = super().getconn(deadline - time.monotonic())
            try:
                _make_sure_of(connection)
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

    def putconn(self, conn: Checked) -> None:
        """As psycopg's. Not even the beginning of a transaction that was never sent is left to the next borrower."""
        conn.drop()
        super().putconn(conn)

    def _get_ready_connection(self, timeout: float | None) -> Checked | None:
        """The one that was given back last: the caches hold most of what its server process needs."""
        # psycopg, which holds the pool's lock here, gives the first, and when the pool shrinks gives up the first.
        self._pool.rotate()
        return super()._get_ready_connection(timeout)


def _make_sure_of(connection: Checked) -> None:
    """Raises psycopg's `Error` for a dead one. To ask the server is a round trip, and so for now and then."""
    now = time.monotonic()
    if now - connection.answered_at < TRUSTED_SECONDS and _is_silent(connection):
        return
    ConnectionPool.check_connection(connection)
    connection.answered_at = now


def _is_silent(connection: Checked) -> bool:
    """Whether nothing waits to be read: a server that ends a session says why, and hangs up."""
    looking = select.poll()
    looking.register(connection.pgconn.socket, select.POLLIN)
    return not looking.poll(0)
