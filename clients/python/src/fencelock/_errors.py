"""What can go wrong, by name, as in the library of Rust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FencelockError(Exception):
    """Any error of this package. Its text names the key, the holder, the time left and what to do, where they are known.

    `code` is the exit code of the program `fencelock` for the same error, or a number of JSON-RPC below zero: 71 if the server is
    being stopped, -32001 if a limit of the session is reached. `data` is what the server says beside the text.
    """

    code = 70

    def __init__(self, message: str, data: Mapping[str, Any] | None = None, code: int | None = None):
        self.data: dict[str, Any] = dict(data or {})
        super().__init__(": ".join(filter(None, (message, self.data.get("advice")))))
        self.code = code or self.code
        self.holder, self.remaining = self.data.get("holder"), self.data.get("remaining")


class LockBusy(FencelockError):
    """Another client held the key until the wait was over. Nothing is held, and nothing waits any more. Try later."""

    code = 75
    #: `host`, `pid`, `label` and `name` of the holder. `None` if another program holds the key: then `data["foreign"]`.
    holder: dict[str, Any] | None
    #: After how many seconds the hold ends unless it is renewed; `None` if unknown.
    remaining: float | None


class LockLost(FencelockError):
    """The lock has ended although it was not released here. Stop the work: another client may hold the key."""

    code = 76


class Unreachable(FencelockError):
    """The server or its backend did not answer, so it is unknown who holds the lock. Try later."""

    code = 69


class UsageError(FencelockError, ValueError):
    """An argument cannot be used, or the server and this client do not fit. A retry does not help."""

    code = 64


def from_reply(error: Mapping[str, Any]) -> FencelockError:
    """The exception for the `error` of a reply."""
    kinds = {64: UsageError, -32600: UsageError, -32602: UsageError, 69: Unreachable, 75: LockBusy, 76: LockLost}
    return kinds.get(error["code"], FencelockError)(error["message"], error.get("data"), error["code"])
