"""pottery's Redlock, on one server or on several, as peer.py has its locks."""

import importlib.metadata

from pottery import Redlock, ReleaseUnlockedLock

VERSION = "pottery " + importlib.metadata.version("pottery")


class Impatient(Redlock):
    """Pauses for less than its 200 ms, so that it gets turns among others that do not pause at all."""

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
