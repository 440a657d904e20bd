"""python peer.py lock|redlock|pottery PORT...

redis-py's own lock, or pottery's, behind the lines that every peer understands; testing/interop/src/lib.rs lists them.
"""

import pathlib
import platform
import random
import sys
import time
import uuid

import redis
from redis.exceptions import LockError


class OneServer:
    """The lock of redis-py, with its own waiting."""

    def __init__(self, servers):
        self.server = servers[0]
        self.lock = None

    def acquire(self, key, ttl, wait):
        lock = self.server.lock(key, timeout=ttl / 1000, sleep=0.003)
        if wait == 0:
            held = lock.acquire(blocking=False)
        else:
            held = lock.acquire(blocking=True, blocking_timeout=wait / 1000)
        if held:
            self.lock = lock
        return held

    def release(self):
        try:
            self.lock.release()
        except LockError:
            return False
        return True


class Majority:
    """Redlock made of redis-py's locks: one on each server, all with the same token."""

    def __init__(self, servers):
        self.servers = servers
        self.locks = []

    def attempt(self, key, ttl):
        token = uuid.uuid4().hex
        begun = time.monotonic()
        locks = [server.lock(key, timeout=ttl / 1000) for server in self.servers]
        self.locks = [lock for lock in locks if lock.acquire(blocking=False, token=token)]
        spent = (time.monotonic() - begun) * 1000
        validity = ttl - spent - (ttl * 0.01 + 2)
        if self.is_majority(len(self.locks)) and validity > 0:
            return True
        self.release()
        return False

    def acquire(self, key, ttl, wait):
        end = time.monotonic() + wait / 1000
        while not self.attempt(key, ttl):
            if time.monotonic() >= end:
                return False
            time.sleep(random.uniform(0.001, 0.005))
        return True

    def release(self):
        freed = 0
        for lock in self.locks:
            try:
                lock.release()
                freed += 1
            except LockError:
                pass
        self.locks = []
        return self.is_majority(freed)

    def is_majority(self, votes):
        return 2 * votes > len(self.servers)


def count_up(lock, key, ttl, file, times):
    """Reads a number, waits, and writes the next one: only a lock prevents lost updates."""
    for done in range(times):
        if not lock.acquire(key, ttl, 60_000):
            raise RuntimeError(f"no turn within a minute, after {done}")
        seen = int(file.read_text() or 0)
        time.sleep(0.0005)
        file.write_text(str(seen + 1))
        if not lock.release():
            raise RuntimeError(f"lost while counting, after {done}")


def answer(lock, servers, words):
    match words:
        case ["try", key, ttl]:
            return "held" if lock.acquire(key, int(ttl), 0) else "busy"
        case ["lock", key, ttl, wait]:
            return "held" if lock.acquire(key, int(ttl), int(wait)) else "busy"
        case ["unlock"]:
            return "freed" if lock.release() else "lost"
        case ["delete", key]:
            for server in servers:
                server.delete(key)
            return "deleted"
        case ["count", key, ttl, file, times]:
            count_up(lock, key, int(ttl), pathlib.Path(file), int(times))
            return "counted"
    return f"error no such words: {words}"


def library(kind, servers):
    """The lock with that name, and its name with its version."""
    if kind == "pottery":
        # Not always installed.
        import pottery_lock

        return pottery_lock.Pottery(servers), pottery_lock.VERSION
    lock = Majority(servers) if kind == "redlock" else OneServer(servers)
    return lock, f"redis-py {redis.__version__}"


def main():
    servers = [redis.Redis(port=int(port), socket_timeout=5) for port in sys.argv[2:]]
    lock, version = library(sys.argv[1], servers)
    print(f"ready Python {platform.python_version()}, {version}", flush=True)
    for line in sys.stdin:
        try:
            said = answer(lock, servers, line.split())
        except Exception as failure:  # report every error to the test
            said = "error " + " ".join(str(failure).split())
        print(said, flush=True)


main()
