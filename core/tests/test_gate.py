"""What one caller may have of a web process at once, so that nobody else waits for them."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from core import rate_limits
from core.errors import AuthenticationRequired, RateLimited, Unavailable
from core.gate import ACCOUNT, STRANGER, Gate, another_turn, present

POOL = 16


def a_scope(credentials="", address="192.0.2.1", path="/search/"):
    """Of a request with this token, or with a session whose key begins with `session`."""
    is_session = credentials.startswith("session")
    header = (b"cookie", b"sessionid=%b") if is_session else (b"authorization", b"Bearer %b")
    headers = [(header[0], header[1] % credentials.encode())] if credentials else []
    return {"type": "http", "path": path, "headers": headers, "client": (address, 1)}


class Requests:
    """Requests of a gate, which run until they are let go. `account-7…` are credentials of the account 7."""

    def __init__(self):
        self.gate, self.running, self.go, self.looked_up = Gate(self.account_of, connections=POOL), [], None, 0

    def account_of(self, credentials):
        self.looked_up += 1
        kind, _, rest = (credentials.session or credentials.authorization).rpartition(" ")[2].partition("-")
        return kind != "wrong", int(rest.partition("-")[0]) if kind in ("account", "session") else None

    async def _run(self, scope):
        async with self.gate.turn(await self.gate.key_of(scope)):
            self.running.append(scope)
            await self.go.wait()

    def begin(self, *scopes):
        return [asyncio.create_task(self._run(scope)) for scope in scopes]


def tried(test):
    """Runs the test, a coroutine, with requests that all end with it."""

    def run(limited, monkeypatch):
        limited(calls=8, calls_address=20)
        monkeypatch.setattr("core.gate.connections.close_all", lambda: None)

        async def begin():
            requests = Requests()
            requests.go = asyncio.Event()
            await test(requests)
            requests.go.set()
            await asyncio.sleep(0)

        asyncio.run(begin())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def settled(requests):
    """The requests that run, once no more of them begin."""
    await asyncio.sleep(0.5)
    return len(requests.running)


@tried
async def test_an_account_has_an_eighth_of_the_pool_wherever_it_calls_from(requests):
    scopes = [a_scope(f"account-7-{number}", f"192.0.2.{number}") for number in range(8)]
    requests.begin(*scopes)
    assert await settled(requests) == POOL // 8
    requests.begin(a_scope("account-8"))
    assert await settled(requests) == POOL // 8 + 1


@tried
async def test_beyond_its_queue_a_call_waits_a_second_and_is_refused(requests):
    requests.begin(*[a_scope("account-7")] * 8)
    await settled(requests)
    began = time.monotonic()
    (refused,) = requests.begin(a_scope("account-7"))
    with pytest.raises(RateLimited, match="8 of your calls are running"):
        await refused
    assert 1 <= time.monotonic() - began < 3
    (waiting,) = requests.begin(a_scope("account-7"))
    requests.go.set()
    await waiting


@tried
async def test_strangers_have_an_eighth_for_an_address_and_a_quarter_together(requests):
    for number in range(POOL):
        requests.begin(*[a_scope(address=f"192.0.2.{number}")] * 4)
        assert await settled(requests) == min((number + 1) * POOL // 8, POOL // 4)
    requests.begin(a_scope("account-7"))
    assert await settled(requests) == POOL // 4 + 1


@tried
async def test_who_took_long_waits_three_times_as_long_but_not_when_alone(requests):
    for beside, running in (("account-7", 2), ("account-8", 1)):
        begun = requests.begin(a_scope(beside), a_scope("account-7"))
        await asyncio.sleep(0.8)
        requests.go.set()
        await asyncio.gather(*begun)
        requests.go.clear()
        requests.running = []
        begun = requests.begin(*[a_scope("account-7")] * 2)
        assert await settled(requests) == running
        requests.go.set()
        await asyncio.gather(*begun)
        requests.go.clear()


@tried
async def test_visitors_and_wrong_credentials_count_by_their_address(requests):
    requests.begin(*[a_scope(f"visitor-{number}") for number in range(5)])
    requests.begin(*[a_scope(f"wrong-{number}") for number in range(5)])
    assert await settled(requests) == POOL // 8


@tried
async def test_log_in_and_healthz_are_answered_while_everything_else_is_taken(requests):
    requests.begin(*[a_scope(f"account-{number % 9}") for number in range(POOL * 2)])
    requests.begin(*[a_scope(address=f"198.51.100.{number}") for number in range(POOL)])
    assert await settled(requests) == POOL - 4
    requests.begin(*[a_scope(address=f"203.0.113.{number}", path="/login/") for number in range(5)])
    requests.begin(*[a_scope(path="/healthz")] * 3)
    assert await settled(requests) == POOL - 4 + 2 + 1


@tried
async def test_of_thirty_accounts_behind_one_address_none_waits_for_another(requests):
    begun = requests.begin(*[a_scope(f"account-{number}") for number in range(30)])
    await settled(requests)
    requests.go.set()
    await asyncio.gather(*begun)
    requests.go.clear()
    requests.running.clear()
    # Strangers at their address, who take all of its turns and its queue.
    requests.begin(*[a_scope()] * 22)
    assert await settled(requests) == POOL // 8
    requests.begin(*[a_scope(f"account-{number}") for number in range(11)])
    assert await settled(requests) == POOL - 4


@tried
async def test_twenty_unknown_wait_at_an_address_and_no_other_address_waits(requests):
    begun = requests.begin(*[a_scope(f"wrong-{number}") for number in range(60)])
    await asyncio.sleep(1.3)
    assert sum(isinstance(task.exception(), RateLimited) for task in begun if task.done()) == 40
    requests.begin(a_scope("account-7", "198.51.100.1"))
    assert await settled(requests) == POOL // 8 + 1


@tried
async def test_an_address_of_too_many_wrong_ones_is_refused_before_the_queue(requests):
    rate_limits.RATES["refused_address"] = "3/hour"
    for _ in range(4):
        rate_limits.counted_refusal(AuthenticationRequired(), address="192.0.2.66")
    begun = requests.begin(a_scope("account-7", "192.0.2.66"), a_scope("account-7", "192.0.2.67"))
    await settled(requests)
    assert isinstance(begun[0].exception(), RateLimited)
    assert (len(requests.running), requests.looked_up) == (1, 1)
    # What is known already does not count against its address.
    requests.begin(a_scope("account-7", "192.0.2.66"))
    assert await settled(requests) == 2


@tried
async def test_credentials_are_looked_up_once_and_again_after_a_while(requests):
    requests.go.set()
    for credentials in ("account-7", "visitor-1"):
        for _ in range(3):
            await asyncio.gather(*requests.begin(a_scope(credentials)))
    assert requests.looked_up == 2
    requests.gate._known = {digest: (account, at - 1000) for digest, (account, at) in requests.gate._known.items()}
    await asyncio.gather(*requests.begin(a_scope("account-7")))
    assert requests.looked_up == 3


@tried
async def test_a_request_that_leaves_while_it_waits_keeps_no_place(requests):
    running = requests.begin(*[a_scope("account-7")] * 4)
    await settled(requests)
    for _ in range(12):
        (waiting,) = requests.begin(a_scope("account-7"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    more = requests.begin(*[a_scope("account-7")] * 4)
    requests.go.set()
    await asyncio.gather(*running, *more)


@tried
async def test_what_goes_on_after_its_request_takes_turns_of_the_same_caller(requests):
    @asynccontextmanager
    async def left_behind():
        async with requests.gate.turn((ACCOUNT, 7)):
            pass
        async with another_turn():
            yield

    async with left_behind():
        assert present.get()[1] == (ACCOUNT, 7)
        requests.begin(*[a_scope("account-7")] * 4)
        assert await settled(requests) == POOL // 8 - 1


def test_bytes_are_counted_by_key_and_together_and_given_back():
    bytes_ = Gate(lambda _: (False, None), connections=POOL).bodies
    for _ in range(2):
        with bytes_.held((ACCOUNT, 7), most=100, most_of_key=60) as hold:
            hold(20)
            hold(60)
            with pytest.raises(Unavailable):
                hold(61)
            with bytes_.held((STRANGER, "192.0.2.1"), most=100, most_of_key=60) as theirs:
                theirs(40)
                with pytest.raises(Unavailable):
                    theirs(41)
