"""python worker.py fencelock|redis-py|python-redis-lock|pottery [version]

Python's lock libraries, one thread for each task; ../README.md describes a worker.
"""

import importlib.metadata
import json
import logging
import os
import platform
import random
import sys
import threading
import time

import redis


class RedisPy:
    """`Redis.lock`: polls every 100 ms."""

    package = "redis"

    def __init__(self, job):
        self.server = redis.Redis.from_url(job["url"])
        self.server.ping()
        self.ttl = job["ttl_ms"] / 1000

    def acquire(self, key, patience):
        lock = self.server.lock(key, timeout=self.ttl)
        return lock if lock.acquire(blocking_timeout=patience) else None


class PythonRedisLock(RedisPy):
    """Waits for the signal that a release pushes onto a list. Its times are whole seconds."""

    package = "python-redis-lock"

    def acquire(self, key, patience):
        import redis_lock

        lock = redis_lock.Lock(self.server, key, expire=round(self.ttl))
        return lock if lock.acquire() else None


class Pottery(RedisPy):
    """Redlock on one server: polls after a random pause of up to 200 ms."""

    package = "pottery"

    def acquire(self, key, patience):
        from pottery import Redlock

        lock = Redlock(key=key, masters={self.server}, auto_release_time=self.ttl)
        return lock if lock.acquire(timeout=patience) else None


class Fencelock(RedisPy):
    """The client of this tree, and the server that FENCELOCK_SOCKET names."""

    def __init__(self, job):
        super().__init__(job)
        sys.path.insert(0, f"{os.path.dirname(__file__)}/../../../../clients/python/src")
        import fencelock

        self.client = fencelock.Client()

    def acquire(self, key, patience):
        return self.client.lock(key, ttl=self.ttl)


LIBRARIES = {"fencelock": Fencelock, "redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "pottery": Pottery}


class Task(threading.Thread):
    """Acquires and releases locks until the end."""

    def __init__(self, job, number, library, span):
        # Waiting tasks do not delay the exit.
        super().__init__(daemon=True)
        self.job, self.number, self.library = job, number, library
        self.counted, self.end = span
        self.grants = self.refused = self.errors = 0
        self.sold_out = False
        self.first_error = None
        self.waits = {}

    def run(self):
        while time.monotonic() < self.end and not self.sold_out:
            try:
                self.turn(self.key())
            except Exception as failure:  # report every error to the run
                self.errors += 1
                self.first_error = self.first_error or f"{type(failure).__name__}: {failure}"
                time.sleep(0.01)

    def key(self):
        job = self.job
        match job["workload"]:
            case "uncontended":
                return f"{job['key']}:{job['process']}:{self.number}"
            case "many-keys":
                return f"{job['key']}:{random.randrange(job['keys'])}"
        return job["key"]

    def turn(self, key):
        asked = time.monotonic()
        # After the end, because some libraries give up early if the next pause would exceed the timeout.
        while (lock := self.library.acquire(key, self.end + 1 - time.monotonic())) is None:
            if time.monotonic() >= self.end:
                return
            self.refused += 1
        granted = time.monotonic()
        if self.job["workload"] == "flash-sale" and granted <= self.end:
            self.sold_out = not sell(self.library.server, key)
        if asked >= self.counted and granted <= self.end:
            wait = rounded(int((granted - asked) * 1e6))
            self.waits[wait] = self.waits.get(wait, 0) + 1
            self.grants += 1
        lock.release()


def sell(server, key):
    """Returns whether an item was left. Only the lock prevents other sales between reading and writing."""
    stock = int(server.get(f"{key}:stock") or 0)
    if stock > 0:
        server.set(f"{key}:stock", stock - 1)
        server.rpush(f"{key}:sold", stock)
    return stock > 0


def rounded(micros):
    """Rounds to three digits."""
    unit = 10 ** max(len(str(micros)) - 3, 0)
    return (micros + unit // 2) // unit * unit


def log_of(tasks):
    waits = {}
    for task in tasks:
        # A copy, because the thread may be in its last iteration.
        for wait, count in list(task.waits.items()):
            waits[wait] = waits.get(wait, 0) + count
    return {
        "tasks": [{"grants": task.grants, "refused": task.refused} for task in tasks],
        "waits": sorted(waits.items()),
        "errors": sum(task.errors for task in tasks),
        "first_error": next((task.first_error for task in tasks if task.first_error), None),
    }


def version(library):
    installed = importlib.metadata.version
    client = "" if library is RedisPy else f", redis-py {installed('redis')}"
    name = "redis-py" if library is RedisPy else library.package
    return f"{name} {installed(library.package)}{client}, Python {platform.python_version()}"


def main():
    library = LIBRARIES[sys.argv[1]]
    if sys.argv[2:] == ["version"]:
        print(version(library))
        return
    # Do not log every refusal.
    logging.disable(logging.CRITICAL)
    job = json.loads(sys.stdin.readline())
    server = library(job)
    print("ready", flush=True)
    sys.stdin.readline()
    counted = time.monotonic() + job["warm_up_ms"] / 1000
    end = counted + job["span_ms"] / 1000
    tasks = [Task(job, number, server, (counted, end)) for number in range(job["tasks"])]
    for task in tasks:
        task.start()
    if job["workload"] == "flash-sale":
        # A started sale must be completed; it may also end early.
        for task in tasks:
            task.join(timeout=max(end + 5 - time.monotonic(), 0))
    else:
        time.sleep(max(end - time.monotonic(), 0))
    print(json.dumps(log_of(tasks)), flush=True)
    os._exit(0)


main()
