"""A connection whose statements go to PostgreSQL together, in libpq's pipeline mode, and are answered later.

To wait for an answer is to be put to sleep and woken up again, on both sides, which takes as long as a short statement.
So a transaction begins along with its first statement; a statement can be sent now and its answer read later, while
Python and PostgreSQL are at work side by side; and one that nobody waits for goes along with the COMMIT.

Whatever else psycopg does with the connection is done after all of that: `wait`, by which it goes, sees to it.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from psycopg import abc, adapt
from psycopg.abc import Buffer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGresult
from psycopg.waiting import Ready, Wait

Rows = list[tuple[Any, ...]]
Parameters = Mapping[str, Any]
Reading = Generator[Wait, Ready | int, list[PGresult]]

# More would be a fault: what is prepared is one of a few. Beyond, statements are planned whenever they are run.
MOST_PREPARED = 250

_PLACE = re.compile(r"%(?:\((\w+)\)s|%)")
_BEGIN, _COMMIT = "BEGIN", "COMMIT"


class Statement:
    """One that is sent, or will be, with its parameters as the server reads them."""

    def __init__(self, connection: "PipelinedConnection", text: str, parameters: Parameters) -> None:
        numbered, names = _as_the_server_reads_it(text)
        self.text = numbered.encode()
        self.values: Sequence[Buffer | None] = []
        self.types: tuple[int, ...] = ()
        self.formats: Sequence[Format] = []
        if names:
            transformer = connection.transformer
            self.values = transformer.dump_sequence(
                [parameters[name] for name in names], [adapt.PyFormat.AUTO] * len(names)
            )
            self.types, self.formats = transformer.types or (), transformer.formats or []
        self.result: PGresult | None = None
        self._connection = connection

    def rows(self) -> Rows:
        """All of them. Raises what the statement, or one that was sent before it, raises."""
        if self.result is None:
            self._connection.settle()
        if self.result is None or self.result.status == ExecStatus.PIPELINE_ABORTED:
            raise psycopg.InterfaceError(
                "The statement was not run: one before it failed, or its transaction has ended."
            )
        self._connection.raise_if_failed(self.result)
        transformer = self._connection.transformer
        transformer.set_pgresult(self.result)
        return transformer.load_rows(0, self.result.ntuples, tuple)


class PipelinedConnection(psycopg.Connection[Any]):
    """psycopg's connection with `begin`, `send` and `put_off`.

    Parameters of these are named as in psycopg, `%(name)s`, and bound by the server. One thread at a time may use it.
    """

    keeps_plans = False
    """Whether `send` and its like are planned once on this connection; see `keep_plans`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unsent: list[Statement] = []
        # Each list ends where both sides are at one again, whatever failed in it.
        self._sent: list[list[Statement]] = []
        # Not while nothing is unsent but the transaction's beginning.
        self._has_begun = True
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._transformer: abc.Transformer | None = None

    @property
    def transformer(self) -> abc.Transformer:
        """Made when it is first needed: by then it is known what types there are."""
        if self._transformer is None:
            self._transformer = adapt.Transformer(self)
        return self._transformer

    def keep_plans(self) -> None:
        """Have what is sent here planned once, with one plan whatever the parameters.

        PostgreSQL would make some anew for every call: it takes a parameter in a LIMIT for a tenth of all rows, and a
        plan for the call looks better.
        """
        self.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
        self.keeps_plans = True
        # psycopg's own are not to be told from these when it drops all there are.
        self.prepare_threshold = None

    def begin(self, opening: str = "", parameters: Parameters | None = None) -> None:
        """Begin a transaction, with a statement of its own if given. The server is told along with what is next."""
        self.settle()
        try:
            self.put_off(_BEGIN, {})
            if opening:
                self.put_off(opening, parameters or {})
        except BaseException:
            # Half a beginning would go along with whatever is next, and nobody would end what it began.
            self._unsent = []
            raise
        self._has_begun = False

    def send(self, text: str, parameters: Parameters) -> Statement:
        """Send a statement, along with what was put off before; its rows can be waited for later."""
        statement = self.put_off(text, parameters)
        self._send()
        return statement

    def put_off(self, text: str, parameters: Parameters) -> Statement:
        """Have a statement sent along with whatever is next; with the COMMIT, which it fails if it fails."""
        statement = Statement(self, text, parameters)
        self._prepare(statement)
        self._unsent.append(statement)
        self._has_begun = True
        return statement

    def settle(self) -> None:
        """Send what is unsent and read all answers. Raises the first error that is among them."""
        if self._unsent:
            self._has_begun = True
            self._send()
        if self._sent:
            self._read()

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Everything that psycopg does goes by here."""
        if self._sent or self._unsent:
            self.settle()
        return super().wait(gen, *args, **options)

    def commit(self) -> None:
        """As psycopg; along with what was put off."""
        if not self._has_begun:
            # Nothing was done in it, and the server never heard of it.
            self.drop()
        elif self._unsent:
            self.send(_COMMIT, {})
            self.settle()
        else:
            super().commit()

    def rollback(self) -> None:
        """As psycopg; what was put off is never sent, and what was sent is answered to nobody."""
        self.drop()
        super().rollback()

    def drop(self) -> None:
        """Forget what was put off, and who is to be told of what was sent."""
        self._unsent, self._has_begun = [], True
        with suppress(psycopg.Error):
            self.settle()

    def raise_if_failed(self, result: PGresult) -> None:
        """Raises what PostgreSQL complains of."""
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, encoding=self.info.encoding)

    def _send(self) -> None:
        statements, self._unsent = self._unsent, []
        pgconn = self.pgconn
        try:
            if not self._sent:
                pgconn.enter_pipeline_mode()
            for one in statements:
                if name := self._names.get((one.text, one.types)):
                    pgconn.send_query_prepared(name, one.values, one.formats)
                else:
                    pgconn.send_query_params(one.text, one.values, one.types, one.formats)
            pgconn.pipeline_sync()
            # What the socket does not take now is sent while the answers are waited for.
            pgconn.flush()
        except BaseException:
            # Nobody could tell what the server has heard.
            pgconn.finish()
            raise
        self._sent.append(statements)

    def _prepare(self, statement: Statement) -> None:
        """Have a statement planned, unless it is. It is asked for alone, so that what is wrong with it is its fault."""
        key = (statement.text, statement.types)
        if key in self._names or not self.keeps_plans or len(self._names) >= MOST_PREPARED:
            return
        if self._sent:
            self._read()
        name = f"kept_{len(self._names)}".encode()
        self.raise_if_failed(self.pgconn.prepare(name, statement.text, statement.types))
        self._names[key] = name

    def _read(self) -> None:
        sent, self._sent = self._sent, []
        try:
            results = super().wait(self._reading(len(sent)))
        except BaseException:
            if self.pgconn.pipeline_status != PipelineStatus.OFF:
                self.pgconn.finish()
            raise
        for statement, result in zip(chain.from_iterable(sent), results, strict=True):
            statement.result = result
        for result in results:
            self.raise_if_failed(result)

    def _reading(self, lists: int) -> Reading:
        """The results of all that was sent, and out of pipeline mode."""
        pgconn, results = self.pgconn, []
        while pgconn.flush():
            if (yield Wait.RW) & Ready.R:
                pgconn.consume_input()
        while lists:
            while pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:  # the end of one statement's
                if pgconn.status == ConnStatus.BAD:
                    raise psycopg.OperationalError(pgconn.get_error_message())
            elif result.status == ExecStatus.PIPELINE_SYNC:
                lists -= 1
            else:
                results.append(result)
        pgconn.exit_pipeline_mode()
        return results


@lru_cache(maxsize=MOST_PREPARED)
def _as_the_server_reads_it(statement: str) -> tuple[str, list[str]]:
    """The statement with its parameters numbered, and their names in that order."""
    numbers: dict[str, int] = {}

    def number(place: re.Match[str]) -> str:
        name = place[1]
        return "%" if name is None else f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _PLACE.sub(number, statement), list(numbers)
