"""Under gevent, which replaces threads, sockets and locks before anything else is imported."""

import pytest
from conftest import python

pytest.importorskip("gevent")

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os, pathlib, sys, time
import gevent
import fencelock

client, counter = fencelock.Client(sys.argv[1]), pathlib.Path(sys.argv[2])
counter.write_text("0")
ticks = 0

def work():
    for _ in range(5):
        with client.lock("counter", wait=60):
            number = int(counter.read_text())
            gevent.sleep(0.001)
            counter.write_text(str(number + 1))

def tick():
    global ticks
    while True:
        gevent.sleep(0.01)
        ticks += 1

gevent.spawn(tick)
gevent.joinall([gevent.spawn(work) for _ in range(8)], raise_error=True)
print("counted", counter.read_text())

# A greenlet that waits does not stop the others, and one that is ended leaves the queue.
held, before = client.lock("k"), ticks
waiter = gevent.spawn(client.lock, "k")
gevent.sleep(0.5)
assert ticks - before > 10, ticks
waiter.kill()
with gevent.Timeout(0.3, False):
    client.lock("k")
held.release()
with client.lock("k", wait=20) as held:
    pid = os.fork()
    if pid == 0:
        try:
            held.check()
        except fencelock.LockLost:
            with client.lock("child", wait=20):
                gevent.sleep(0.1)
                os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    held.remaining()
client.close()
print("ended")
"""


@pytest.mark.parametrize("through", ["socket", "child"])
def test_greenlets_exclude_each_other(serve, redis, tmp_path, through):
    redis.delete_everything()
    place = serve(redis.url).path if through == "socket" else redis.url
    ended = python(PROGRAM, place, str(tmp_path / "counter"))
    assert ended.stdout == "counted 40\nended\n", ended.stderr
