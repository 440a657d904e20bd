"""pottery's Redlock, on one server or on several, with the interface of the locks in peer.py."""

import importlib.metadata

from pottery import Redlock, ReleaseUnlockedLock

VERSION = "pottery " + importlib.metadata.version("pottery")


class Impatient(Redlock):
    """Pauses for less than the default of 200 ms, so that it can acquire the lock among clients that do not pause."""

    _RETRY_DELAY = 0.005


class Pottery:
    def __init__(self, servers):
        self.servers = set(servers)
        self.lock = None

    def acquire(self, key, ttl, wait):
        lock = Impatient(key=key, masters=self.servers, auto_release_time=ttl / 1000)
        held = lock.acquire(blocking=False) if wait == 0 else lock.acquire(timeout=wait / 1000)
        if held:
            self.lock = lock
        return held

    def release(self):
        try:
            self.lock.release()
        except ReleaseUnlockedLock:
            return False
        return True
