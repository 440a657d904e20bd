"""A loss is noticed in time, and never ignored."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import eventually, granted, usual

from fencelock import AsyncClient, Client, FencelockError, LockLost, Unreachable, _session
from fencelock._session import Session


@pytest.fixture
def server(serve, redis):
    return serve(redis.url)


@pytest.fixture
def client(server):
    with Client(server.path) as client:
        yield client


def delete(server, redis):
    redis.delete_everything()


def kill(server, redis):
    server.process.kill()


def stop(server, redis):
    server.process.send_signal(signal.SIGSTOP)


# How the lock is lost, and what the error says. With a TTL of 4 s, a client asks after 2 s at the latest, and waits for 1 s.
LOSSES = [(delete, "lost"), (kill, "ended the connection"), (stop, "did not answer within 1 s")]


@pytest.mark.parametrize("loss, says", LOSSES)
def test_a_loss_is_reported_without_a_question(client, server, redis, key, loss, says):
    calls = []
    held = client.lock(key, ttl=4, on_lost=calls.append)
    begun = time.monotonic()
    loss(server, redis)
    assert held.lost.wait(20)
    # At the latest when the time last told is over; the rest is for a machine that is busy.
    assert time.monotonic() - begun < 4 + 5
    eventually(lambda: calls == [held])
    with pytest.raises(LockLost, match=f"{key}.*{says}"):
        held.check()
    with pytest.raises(LockLost):
        held.remaining()
    with pytest.raises(LockLost):
        held.release()


@pytest.mark.parametrize("loss, says", LOSSES)
def test_the_task_in_the_block_is_cancelled_and_the_block_raises(server, redis, key, loss, says):
    async def main():
        async with AsyncClient(server.path) as client:
            reached = []
            with pytest.raises(LockLost, match=f"{key}.*{says}") as caught:
                async with client.lock(key, ttl=4) as held:
                    loss(server, redis)
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        reached.append(held.lost.is_set())
                        raise
            assert reached == [True] and isinstance(caught.value.__context__, asyncio.CancelledError)
            # The task itself is not cancelled.
            await asyncio.sleep(0)
            if sys.version_info >= (3, 11):
                assert asyncio.current_task().cancelling() == 0

    asyncio.run(main())


def test_remaining_counts_a_silence_of_a_second_as_loss(client, server, key):
    held = client.lock(key, ttl=600)
    server.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(LockLost, match="did not answer within 1 s"):
        held.remaining()
    assert 1 <= time.monotonic() - begun < 10
    assert held.lost.is_set()
    with pytest.raises(LockLost):
        held.check()


def test_remaining_of_a_task_counts_a_silence_of_a_second_as_loss(server, key):
    async def main():
        async with AsyncClient(server.path) as client:
            held = await client.lock(key, ttl=600)
            server.process.send_signal(signal.SIGSTOP)
            with pytest.raises(LockLost, match="did not answer within 1 s"):
                await held.remaining()
            await asyncio.wait_for(held.lost.wait(), 20)

    asyncio.run(main())


def test_a_lock_ends_when_the_time_last_told_is_over(peer, key):
    answers = [{"remaining": 0.2}]

    def answer(message):
        if message["method"] == "remaining":
            return [{"id": message["id"], "result": answers.pop()}] if answers else []
        return usual(message)

    with Client(peer(answer).path) as client:
        held = client.lock(key)
        assert 0 < held.remaining() <= 0.2
        assert held.lost.wait(20)
        with pytest.raises(LockLost, match="time is over"):
            held.check()


@pytest.mark.parametrize("noticed_by", ["check", "reader"])
def test_a_loss_that_the_server_did_not_tell_is_released_there(peer, key, noticed_by, monkeypatch):
    """The server may renew it for as long as this process lives."""

    def answer(message):
        if message["method"] == "lock":
            reply = granted(message)
            reply["result"]["remaining"] = 0.4
            return [reply]
        return [] if message["method"] == "remaining" else usual(message)

    if noticed_by == "check":
        monkeypatch.setattr(Session, "_look", lambda self, drained: None)
    recorder = peer(answer)
    client = Client(recorder.path)
    with pytest.raises(LockLost, match="time is over"), client.lock(key) as held:
        if noticed_by == "check":
            time.sleep(0.5)
            with pytest.raises(LockLost, match="time is over"):
                held.check()
        assert held.lost.wait(20)
    eventually(lambda: recorder.count("release"))
    assert recorder.messages[-1]["params"] == {"hold": 1}


@pytest.mark.parametrize("through", ["socket", "child"])
def test_a_client_that_was_paused_for_longer_than_its_lease_leaves_no_lock(serve, redis, key, through):
    """The server renews meanwhile, so the client either still has the lock, or says so and releases it."""
    server = serve(redis.url)
    program = """
import fencelock, sys, time
held = fencelock.Client(sys.argv[1]).lock(sys.argv[2], ttl=1)
print("locked", flush=True)
sys.stdin.readline()
fencelock._session.Session._look = lambda self, drained: None
try:
    held.check()
    print("held", flush=True)
    held.release()
except fencelock.LockLost:
    print("lost", flush=True)
sys.stdin.readline()
"""
    target = server.path if through == "socket" else redis.url
    command = [sys.executable, "-c", program, target, key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as paused:
        assert paused.stdout.readline() == b"locked\n"
        paused.send_signal(signal.SIGSTOP)
        time.sleep(2)
        paused.stdin.write(b"\n")
        paused.stdin.flush()
        paused.send_signal(signal.SIGCONT)
        assert paused.stdout.readline() in (b"lost\n", b"held\n")
        with Client(server.path) as client:
            client.lock(key, wait=10).release()


@pytest.mark.parametrize("through", ["socket", "child"])
def test_a_silence_frees_the_locks_when_the_server_goes_on(serve, redis, key, through):
    server, other = serve(redis.url), serve(redis.url)
    with Client(server.path if through == "socket" else redis.url) as client, Client(other.path) as later:
        held = client.lock(key, ttl=60)
        process = server.process if through == "socket" else client._existing()._process
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(LockLost, match="did not answer"):
            held.remaining()
        process.send_signal(signal.SIGCONT)
        later.lock(key, wait=10).release()
        process.wait(10) if through == "child" else None


def release(client, held):
    held.release()


def try_lock(client, held):
    client.try_lock("other")


def connect(client, held):
    Client(client._target[0], program="another connection").lock("other")


@pytest.mark.parametrize("call", [release, try_lock, connect])
def test_a_frozen_server_bounds_a_call(peer, key, call, monkeypatch):
    """The peer answers nothing any more, not even that it remains: the hold needs no renewal."""
    assert _session.REPLY_WITHIN == 10
    monkeypatch.setattr(_session, "REPLY_WITHIN", 1.0)
    frozen = []

    def answer(message):
        replies = [] if frozen else usual(message)
        if message["method"] == "lock" and replies:
            replies[0]["result"]["remaining"] = None
        return replies

    client = Client(peer(answer).path)
    held = client.lock(key)
    frozen.append(True)
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="did not answer within 1 s"):
        call(client, held)
    assert 1 <= time.monotonic() - begun < 8


def test_the_time_is_counted_from_the_question(peer, key):
    """An answer that took half a second has aged by that."""

    def answer(message):
        if message["method"] == "remaining":
            time.sleep(0.5)
        return usual(message)

    with Client(peer(answer).path) as client, client.lock(key) as held:
        assert held.remaining() <= 29.5


def test_a_lock_that_waited_for_longer_than_its_grant_tells_is_held(serve, redis, key):
    """The server tells a short time directly after a hand-off, and the client may not count it from the request."""
    server = serve(redis.url)
    with Client(server.path, program="another connection") as other, Client(server.path) as client:
        first = other.lock(key)
        threading.Timer(3, first.release).start()
        with client.lock(key) as held:
            held.check()
            assert held.remaining() > 0


@pytest.mark.parametrize("answered", [{"result": {"remaining": 30}}, {"error": {"code": 76, "message": "the lock was lost"}}, None])
def test_a_late_grant_is_given_to_nobody_before_the_server_confirms_it(peer, key, answered):
    asked = []

    def answer(message):
        if message["method"] == "lock":
            time.sleep(1)
            return [{"id": message["id"], "result": {"hold": 1, "key": key, "token": 41, "remaining": 0.9}}]
        if message["method"] == "remaining":
            asked.append(message["params"])
            return [{"id": message["id"], **answered}] if answered else []
        return usual(message)

    async def with_a_task(place):
        async with AsyncClient(place) as client, client.lock(key) as held:
            assert await held.remaining() > 20

    def with_a_thread(place):
        with Client(place) as client, client.lock(key) as held:
            assert held.remaining() > 20

    for run in (with_a_thread, lambda place: asyncio.run(with_a_task(place))):
        asked.clear()
        if answered and "result" in answered:
            run(peer(answer).path)
        else:
            with pytest.raises(LockLost if answered else Unreachable):
                run(peer(answer).path)
        assert asked[0] == {"hold": 1}


def test_a_loss_during_the_block_is_an_error_at_its_end(client, redis, key):
    with pytest.raises(LockLost, match=key), client.lock(key, ttl=2) as held:
        redis.delete_everything()
        assert held.lost.wait(20)


def test_a_loss_that_only_the_server_knows_is_an_error_at_the_end(peer, key):
    def answer(message):
        if message["method"] == "release":
            return [{"id": message["id"], "error": {"code": 76, "message": f"{key}: the lock was lost", "data": {"kind": "lost"}}}]
        return usual(message)

    with Client(peer(answer).path) as client, pytest.raises(LockLost, match=key), client.lock(key):
        pass


def test_a_block_that_raises_keeps_its_error_beside_the_loss(client, redis, key):
    with pytest.raises(LockLost) as caught, client.lock(key, ttl=2) as held:
        redis.delete_everything()
        assert held.lost.wait(20)
        raise ZeroDivisionError
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_with_a_callback_the_task_goes_on(server, redis, key):
    async def main():
        calls = []
        async with AsyncClient(server.path) as client:
            with pytest.raises(LockLost):
                async with client.lock(key, ttl=2, on_lost=calls.append) as held:
                    redis.delete_everything()
                    await asyncio.wait_for(held.lost.wait(), 20)
                    calls.append("goes on")
            assert calls == [held, "goes on"]

    asyncio.run(main())


def test_a_callback_may_use_the_client(client, redis, key):
    said = []

    def again(held):
        try:
            held.release()
        except LockLost:
            said.append(client.request("status", key=key)["held"])

    held = client.lock(key, ttl=2, on_lost=again)
    redis.delete_everything()
    eventually(lambda: said)
    assert held.lost.is_set()


def test_max_hold_is_a_loss(client, key):
    held = client.lock(key, max_hold=1)
    assert held.lost.wait(20)
    with pytest.raises(LockLost):
        held.release()


def test_every_lock_of_a_connection_that_ends_is_lost(client, server, key):
    holds = [client.lock(f"{key}:{number}") for number in range(3)]
    waiting = []

    def wait():
        try:
            client.lock(f"{key}:0")
        except FencelockError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    server.process.kill()
    assert all(held.lost.wait(20) for held in holds)
    thread.join(20)
    assert "ended the connection" in str(waiting[0])


def test_a_client_that_was_paused_reads_before_it_counts_a_silence(peer, key, monkeypatch):
    """The answer comes in time, and the thread that reads does not run."""
    recorder = peer()
    receive = Session._receive

    def paused(self, message):
        receive(self, message)
        if message.get("method") == "pause":
            eventually(lambda: recorder.count("remaining") == 1)
            recorder.say({"id": recorder.messages[-1]["id"], "result": {"remaining": 30}})
            time.sleep(1.5)

    def answer(message):
        if message["method"] == "lock":
            reply = granted(message)
            reply["result"]["remaining"] = 4
            return [reply]
        if message["method"] == "remaining" and recorder.count("remaining") == 1:
            return [{"method": "pause"}]
        return usual(message)

    recorder.answer = answer
    monkeypatch.setattr(Session, "_receive", paused)
    with Client(recorder.path) as client, client.lock(key) as held:
        eventually(lambda: recorder.count("remaining") == 1)
        assert not held.lost.wait(2.5)
        assert held.remaining() > 4


def test_a_server_that_is_stopped_in_order_lets_holders_release(client, server, serve, redis, key):
    held = client.lock(key)
    server.process.terminate()
    eventually(lambda: client._existing() is None)
    with pytest.raises(FencelockError):
        client.lock(f"{key}:new", wait=5)
    held.release()
    assert server.process.wait(20) is not None
    assert not held.lost.is_set()


def test_a_server_that_is_stopped_takes_what_is_not_released(serve, redis, key):
    server = serve(redis.url, "--grace", "1s")
    held = Client(server.path).lock(key)
    server.process.terminate()
    assert held.lost.wait(20)
    with pytest.raises(LockLost):
        held.release()


def test_a_lost_notification_of_several_keys_names_the_lock(peer, key):
    def answer(message):
        if message["method"] == "lock":
            keys = message["params"]["keys"]
            return [
                {"id": message["id"], "result": {"hold": 7, "keys": keys, "tokens": [1, 2], "remaining": 30}},
                {"method": "lost", "params": {"hold": 7, "key": keys[1], "keys": keys, "cause": "somebody broke it"}},
            ]
        return usual(message)

    one = peer(answer)
    with Client(one.path) as client:
        held = client.lock([f"{key}:a", f"{key}:b"])
        assert held.lost.wait(20)
        assert one.count("release") == 0
        with pytest.raises(LockLost, match=f"{key}:b.*somebody broke it"):
            held.release()
        # The server keeps the other key until then.
        eventually(lambda: one.count("release") == 1)
