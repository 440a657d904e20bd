"""What a forked child does with what it has of its parent: nothing."""

import gc
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import eventually, forked, python
from test_connect import servers_of

from fencelock import Client, LockLost


def test_a_forked_child_sends_nothing_for_its_parent(peer, key):
    recorder = peer()
    client = Client(recorder.path)
    held, dropped = client.lock(key), [client.lock(f"{key}:dropped")]
    before = len(recorder.messages)

    def child():
        session = held._session
        with pytest.raises(LockLost, match=f"process {os.getppid()} has the lock, not its forked child"):
            held.check()
        with pytest.raises(LockLost):
            held.remaining()
        with pytest.raises(LockLost), held:
            raise AssertionError("the block runs without a lock")
        held.__exit__()  # of a block that the parent has entered
        held.release()
        dropped.clear()  # its destructor runs
        gc.collect()
        client.close()
        session.close()
        session.request("release", {"hold": 1})
        return "ended"

    assert forked(child) == "ended"
    held.remaining()  # a message of the parent, after all those of the child
    assert recorder.methods()[before:] == ["remaining"]
    assert recorder.connections == 1 and not recorder.ended.is_set()
    held.release()
    dropped[0].release()
    client.close()
    assert recorder.ended.wait(20)


PROGRAM = """
import asyncio, atexit, os, sys, time
import fencelock

def fork(end):
    pid = os.fork()
    if pid == 0:
        end()
    os.waitpid(pid, 0)

def threads():
    with fencelock.Client(sys.argv[1]) as client, client.lock("k") as held:
        fork(sys.exit)
        held.remaining()
        fork(lambda: 1 / 0)
        held.remaining()

async def tasks():
    async with fencelock.AsyncClient(sys.argv[1]) as client, client.lock("k") as held:
        fork(lambda: os._exit(0))
        await held.remaining()

if sys.argv[2] == "threads":
    threads()
else:
    asyncio.run(tasks())
"""


@pytest.mark.parametrize(
    "kind, expected", [("threads", ["remaining", "remaining", "release"]), ("tasks", ["remaining", "release"])]
)
def test_a_child_that_exits_in_the_block_of_its_parent_sends_nothing(peer, kind, expected):
    recorder = peer()
    ended = python(PROGRAM, recorder.path, kind)
    assert ended.returncode == 0, ended.stderr
    assert recorder.ended.wait(20)
    assert recorder.methods() == ["hello", "lock", *expected]


def test_a_child_that_exits_does_not_warn_of_the_server_of_its_parent(redis):
    redis.delete_everything()
    ended = python(PROGRAM, redis.url, "threads")
    assert ended.returncode == 0 and "ResourceWarning" not in ended.stderr, ended.stderr


def test_a_forked_child_locks_for_itself(redis, key):
    with Client(redis.url) as client, client.lock(key) as held:

        def child():
            with client.lock(f"{key}:child"):
                busy = client.try_lock(key) is None
                mine = servers_of(os.getpid())
            client.close()
            return [busy, mine]

        busy, servers = forked(child)
        assert busy and len(servers) == 1 and servers != servers_of(os.getpid())
        held.remaining()


def test_a_child_that_lives_does_not_keep_the_connection_of_its_parent(serve, redis, key):
    server = serve(redis.url)
    program = """
import fencelock, os, sys, time
held = fencelock.Client(sys.argv[1]).lock(sys.argv[2], ttl=600)
pid = os.fork()
if pid == 0:
    sys.stdin.read()
    os._exit(0)
print("locked", flush=True)
os.kill(os.getpid(), 9)
"""
    process = subprocess.Popen([sys.executable, "-c", program, server.path, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, Client(server.path) as client:
        assert process.stdout.readline() == b"locked\n"
        client.lock(key, wait=20).release()


def test_descriptors_of_the_parent_are_closed_in_the_child(peer, key):
    recorder = peer()
    with Client(recorder.path) as client, client.lock(key):

        def child():
            links = [os.readlink(file) for file in pathlib.Path("/proc/self/fd").iterdir() if os.path.lexists(file)]
            return sum(link.startswith("socket:") for link in links)

        session = client._existing()
        mine = {session._socket.fileno(), session._incoming.fileno()}
        here = [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]
        sockets = sum(os.readlink(f"/proc/self/fd/{number}").startswith("socket:") for number in here)
        assert forked(child) == sockets - len(mine)


def work(arguments):
    url, key, path = arguments
    with Client(url) as client, client.lock(key, wait=60):
        number = int(path.read_text())
        time.sleep(0.001)
        path.write_text(str(number + 1))


def test_multiprocessing_counts_right(redis, key, tmp_path):
    path = tmp_path / "counter"
    path.write_text("0")
    with Client(redis.url) as client, client.lock(f"{key}:parent"), multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(work, [(redis.url, key, path)] * 30)
        pool.close()
        pool.join()
    assert path.read_text() == "30"


APPLICATION = """
import pathlib, os, time
import fencelock

client = fencelock.Client()
held = client.lock("at-import", wait=60)  # by the master, which preloads this

def application(environ, start_response):
    path = pathlib.Path(os.environ["COUNTER"])
    with client.lock("counter", wait=60):
        number = int(path.read_text())
        time.sleep(0.005)
        path.write_text(str(number + 1))
    held_here = client.try_lock("at-import") is not None
    start_response("200 OK", [])
    return [f"{os.getpid()} {held_here}".encode()]
"""


@pytest.mark.parametrize("worker", ["sync", "gthread", "gevent"])
def test_gunicorn_preloads_and_counts_right(redis, serve, tmp_path, worker):
    if worker == "gevent":
        pytest.importorskip("gevent")
    redis.delete_everything()
    (tmp_path / "counter").write_text("0")
    (tmp_path / "application.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "3", "-k", worker, "-b", "127.0.0.1:0", "application"]
    environment = {**os.environ, "FENCELOCK_URL": redis.url, "COUNTER": str(tmp_path / "counter"), "PYTHONWARNINGS": "ignore"}
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log)
    try:
        pattern = re.compile(r"Listening at: (http://\S+)")
        eventually(lambda: pattern.search((tmp_path / "log").read_text()) or process.poll() is not None, 60)
        address = pattern.search((tmp_path / "log").read_text()).group(1)

        def ask(_):
            with urllib.request.urlopen(address, timeout=60) as reply:
                return reply.read().decode().split()

        with ThreadPoolExecutor(8) as threads:
            replies = list(threads.map(ask, range(60)))
        assert (tmp_path / "counter").read_text() == "60"
        assert {held for _, held in replies} == {"False"}
        assert len({pid for pid, _ in replies}) > 1
    finally:
        process.terminate()
        process.wait(60)
