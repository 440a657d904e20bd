"""Locks of each kind on each backend."""

import asyncio
import gc
import math
import multiprocessing
import signal
import threading
import time

import pytest
from conftest import python

from fencelock import AsyncClient, Client, LockBusy, UsageError


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def other(serve, url):
    """Two clients of different connections, which exclude each other on every backend."""
    server = serve(url)
    with Client(server.path) as one, Client(f"unix:{server.path}", program="another connection") as two:
        yield one, two


def test_a_lock_excludes_others_until_its_block_ends(other, key):
    one, two = other
    with one.lock(key) as held:
        assert held.key == key and held.keys == (key,) and held.tokens == {key: held.token} and held.slot is None
        assert two.try_lock(key) is None
    with two.lock(key, wait=0) as later:
        assert later.token > held.token


def test_try_takes_a_free_lock(client, key):
    with client.try_lock(key) as held:
        held.check()


def test_busy_names_the_holder_and_the_time_left(redis, serve, key):
    server = serve(redis.url)
    with Client(server.path) as client, client.lock(key, label="nightly", ttl=20):
        with pytest.raises(LockBusy) as caught:
            client.lock(key, wait=0.1)
        busy = caught.value
        assert busy.holder["pid"] and busy.holder["label"] == "nightly" and 0 < busy.remaining <= 20
        assert busy.code == 75 and key in str(busy) and "nightly" in str(busy) and busy.data["waited"] >= 0.1


def test_a_wait_ends_when_the_holder_releases(other, key):
    one, two = other
    held = one.lock(key)
    threading.Timer(0.3, held.release).start()
    with two.lock(key, wait=20) as next_one:
        assert next_one.token > held.token


def test_several_keys_are_taken_all_or_none(other, key):
    one, two = other
    a, b = f"{key}:a", f"{key}:b"
    with one.lock(b):
        with pytest.raises(LockBusy):
            two.lock([a, b], wait=0)
        with one.lock(a, wait=0):
            pass
    with two.lock([a, b], wait=5) as held:
        assert held.keys == (a, b) and held.tokens[a] and held.tokens[b]
        assert one.try_lock(a) is None and one.try_lock(b) is None


def test_shared_holders_share_and_keep_exclusive_ones_out(other, key):
    one, two = other
    with one.lock(key, shared=True), two.lock(key, shared=True, wait=5):
        assert one.try_lock(key) is None


def test_permits_are_counted(other, key):
    one, two = other
    with one.lock(key, limit=3, permits=2):
        assert two.try_lock(key, limit=3, permits=2) is None
        with two.lock(key, limit=3, wait=0):
            pass


def test_slots_are_numbered(other, key):
    one, two = other
    with one.lock(key, slots=2) as first, two.lock(key, slots=2, wait=5) as second:
        assert {first.slot, second.slot} == {0, 1}
        assert one.try_lock(key, slots=2) is None


def test_remaining_is_what_the_server_says(client, url, key):
    with client.lock(key, ttl=20) as held:
        if url.startswith("file:"):
            assert held.remaining() == math.inf
        else:
            assert 0 < held.remaining() <= 20


def test_a_second_release_does_nothing_and_a_released_lock_is_not_held(client, key):
    with client.lock(key) as held:
        held.release()
        with client.lock(key, wait=0):
            pass
    with pytest.raises(UsageError, match="was released"):
        held.check()


def test_a_block_that_raises_releases(client, key):
    with pytest.raises(ZeroDivisionError), client.lock(key):
        _ = 1 / 0
    with client.lock(key, wait=0):
        pass


def test_a_lock_that_is_collected_is_released_with_a_warning(client, key):
    held = client.lock(key)
    with pytest.warns(ResourceWarning, match=key):
        del held
        gc.collect()
    with client.lock(key, wait=20):
        pass


def test_the_same_owner_gets_the_same_lock(client, key):
    with client.lock(key, owner="me") as held:
        assert client.lock(key, owner="me", wait=0) is held
    with client.lock(key, owner="you", wait=0):
        pass


def test_status_and_list_show_the_lock(redis, key):
    with Client(redis.url) as client, client.lock(key, label="seen"):
        assert client.request("status", key=key)["held"] is True
        assert key in [lock["key"] for lock in client.request("list")["locks"]]


def test_a_mistyped_option_is_an_error(client, key):
    with pytest.raises(TypeError, match="waitt"):
        client.lock(key, waitt=5)


def test_a_value_that_cannot_be_used_is_an_error(client, key):
    with pytest.raises(UsageError, match="ttl"):
        client.lock(key, ttl=-1)
    with client.lock(key, wait=5):
        pass


BAD = [{"wait": "5"}, {"wait": 1e300}, {"wait": math.nan}, {"wait": -60}, {"ttl": math.inf}, {"ttl": "5"}, {"label": b"text"}]


@pytest.mark.parametrize("options", BAD)
def test_an_option_that_cannot_be_sent_is_an_error(client, key, options):
    held = client.lock(f"{key}:other")
    with pytest.raises(UsageError):
        client.lock(key, **options)
    held.release()


@pytest.mark.parametrize("bad", [5, [5], None, b"bytes", "\ud800", "k" * 70_000])
def test_a_key_that_cannot_be_sent_is_an_error(client, key, bad):
    held = client.lock(key)
    with pytest.raises(UsageError):
        client.lock(bad, wait=5)
    held.release()


def test_a_lock_that_was_released_cannot_be_entered_again(client, url, key):
    lock = client.lock(key)
    with lock:
        pass
    with pytest.raises(UsageError, match=f"{key}.*was released.*`lock` again"), lock:
        raise AssertionError("the block runs without a lock")

    async def main():
        async with AsyncClient(url) as client:
            held = await client.lock(key, on_lost=print)
            async with held:
                pass
            with pytest.raises(UsageError, match="was released"):
                async with held:
                    raise AssertionError("the block runs without a lock")

    asyncio.run(main())


def test_a_lock_has_one_block_whatever_thread_or_task_enters_it(client, url, key):
    inside = []

    def enter(held):
        try:
            with held:
                inside.append(held)
                time.sleep(0.2)
        except UsageError as error:
            inside.append(str(error))

    held = client.lock(key)
    threads = [threading.Thread(target=enter, args=(held,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside[0] is held and "a block has this lock: call `lock` for each block" in inside[1]

    async def main():
        async with AsyncClient(url) as client:
            async with await client.lock(key, on_lost=print) as held:
                with pytest.raises(UsageError, match="a block has this lock"):
                    async with held:
                        raise AssertionError("the block ends with another")
                held.check()

    asyncio.run(main())


def increment(path):
    """Counts in a file, and loses a count if anybody else counts meanwhile."""
    number = int(path.read_text())
    time.sleep(0.001)
    path.write_text(str(number + 1))


@pytest.fixture
def counter(tmp_path):
    path = tmp_path / "counter"
    path.write_text("0")
    return path


def test_threads_exclude_each_other(client, key, counter):
    def work():
        for _ in range(10):
            with client.lock(key, wait=60):
                increment(counter)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "80"


def test_tasks_exclude_each_other_and_threads(url, key, counter):
    def thread():
        with Client(url) as client:
            for _ in range(10):
                with client.lock(key, wait=60):
                    increment(counter)

    async def task(client):
        for _ in range(5):
            async with client.lock(key, wait=60):
                number = int(counter.read_text())
                await asyncio.sleep(0.001)
                counter.write_text(str(number + 1))

    async def main():
        async with AsyncClient(url) as client:
            beside = asyncio.get_running_loop().run_in_executor(None, thread)
            await asyncio.gather(*(task(client) for _ in range(8)), beside)

    asyncio.run(main())
    assert counter.read_text() == "50"


def count_in_process(path, key, counter):
    with Client(path) as client:
        for _ in range(10):
            with client.lock(key, wait=60):
                increment(counter)


def test_processes_exclude_each_other(serve, url, key, counter):
    server = serve(url)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=count_in_process, args=(server.path, key, counter)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.read_text() == "40"


ENDS = {
    "_exit": "os._exit(0)",
    "exit": "sys.exit(0)",
    "error": "raise ValueError",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "in a thread": "threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(60)",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("through", ["socket", "child"])
def test_the_end_of_a_process_frees_its_locks(serve, redis, key, end, through):
    server = serve(redis.url)
    program = f"""
import fencelock, os, signal, sys, threading, time
held = fencelock.Client(sys.argv[1]).lock(sys.argv[2], ttl=600)
print("locked", flush=True)
{ENDS[end]}
"""
    ended = python(program, server.path if through == "socket" else redis.url, key)
    assert "locked" in ended.stdout
    with Client(server.path) as client:
        client.lock(key, wait=20).release()


def test_an_interrupt_withdraws_the_wait(other, key):
    one, two = other

    def alarm(*_):
        raise KeyboardInterrupt

    held = one.lock(key)
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(KeyboardInterrupt):
        two.lock(key, wait=60)
    held.release()
    with one.lock(key, wait=20):
        assert two.try_lock(key) is None
