"""A wait that is cancelled leaves nothing behind."""

import asyncio
import signal
import sys
import threading

import pytest
from conftest import eventually, granted, usual

from fencelock import AsyncClient, Client, LockBusy


def late(message):
    """Grants a lock only when its cancellation has come, too late."""
    if message["method"] == "lock":
        late.request = message
        return []
    if message["method"] == "cancel":
        assert message["params"] == {"id": late.request["id"]}
        return [granted(late.request, hold=9)]
    return usual(message)


def gives_back(recorder):
    eventually(lambda: recorder.count("release"))
    assert recorder.methods() == ["hello", "lock", "cancel", "release"]
    assert recorder.messages[-1]["params"] == {"hold": 9}


def test_a_task_that_is_cancelled_gives_back_a_grant_that_came_too_late(peer):
    recorder = peer(late)

    async def main():
        client = AsyncClient(recorder.path)
        task = asyncio.ensure_future(client.lock("k"))
        while not recorder.count("lock"):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gives_back(recorder)
        await client.close()

    asyncio.run(main())


def test_a_timeout_gives_back_a_grant_that_came_too_late(peer):
    recorder = peer(late)

    async def main():
        async with AsyncClient(recorder.path) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.lock("k"), 0.2)
            gives_back(recorder)

    asyncio.run(main())


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("wait", [None, 60])
def test_a_thread_that_is_interrupted_gives_back_a_grant_that_came_too_late(peer, interruption, wait):
    recorder = peer(late)

    def alarm(*_):
        raise interruption

    signal.signal(signal.SIGALRM, alarm)
    with Client(recorder.path) as client:
        client.request("status", key="k")
        recorder.messages[1:] = []
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(interruption):
            client.lock("k", wait=wait)
        gives_back(recorder)


def test_a_grant_that_arrived_before_the_cancellation_is_given_back(peer):
    recorder = peer()

    async def main():
        client = AsyncClient(recorder.path)
        await client.request("status", key="k")
        task = asyncio.ensure_future(client.lock("k"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        session = client._existing()
        while not session._holds:  # the loop does not run, so the task does not know
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        eventually(lambda: recorder.count("release") == 1)
        assert not session._holds
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout"])
def test_a_cancelled_wait_leaves_the_queue(serve, redis, key, how):
    server = serve(redis.url)

    async def main():
        async with AsyncClient(server.path) as client:
            held = await client.lock(key)
            if how == "cancel":
                task = asyncio.ensure_future(client.lock(key))
                await asyncio.sleep(0.2)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            elif how == "wait_for":
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.lock(key), 0.2)
            elif sys.version_info >= (3, 11):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2), client.lock(key):
                        pass
            await held.release()
            async with client.lock(key, wait=20):
                with pytest.raises(LockBusy):
                    await client.lock(key, wait=0)

    asyncio.run(main())


def test_a_block_that_is_cancelled_releases(serve, redis, key):
    server = serve(redis.url)

    async def main():
        async with AsyncClient(server.path) as client:
            inside = asyncio.Event()

            async def hold():
                async with client.lock(key):
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.ensure_future(hold())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with client.lock(key, wait=0):
                pass

    asyncio.run(main())


def test_one_client_serves_several_loops(serve, redis, key):
    server = serve(redis.url)
    client = AsyncClient(server.path)

    async def main():
        async with client.lock(key, wait=60) as held:
            return held.token

    tokens = []
    threads = [threading.Thread(target=lambda: tokens.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 4
    asyncio.run(client.close())
