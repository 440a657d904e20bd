"""Locks for threads, and for what gevent makes of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional, TypedDict, Union

from ._errors import LockBusy, Unreachable
from ._session import Connector, Hold, clock

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Keys = Union[str, Sequence[str]]


class LockOptions(TypedDict, total=False):
    """Times are in seconds. At most one of `shared`, `limit` and `slots`; several keys only with `shared`, or with none of them."""

    #: How long the lock outlives its server if that crashes. The server renews in time, and has a default.
    ttl: float | None
    #: What `fencelock status` and the errors of others show.
    label: str | None
    #: Together with other shared holders, and with no exclusive one.
    shared: bool
    #: One of the users of a semaphore with this many permits; all clients must name the same number.
    limit: int | None
    #: How many of them, 1 by default.
    permits: int | None
    #: One of this many numbered locks: `held.slot`.
    slots: int | None
    #: The lock is lost after this time, so that work that hangs does not keep it.
    max_hold: float | None
    #: A second `lock` of the same key and owner in this process gets the same lock again; one release ends it.
    owner: str | None


def lock_params(key: Keys, wait: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request. A mistyped option is an error of the caller, as that of any function."""
    unknown, known = ", ".join(sorted(set(options) - set(LockOptions.__annotations__))), ", ".join(LockOptions.__annotations__)
    if unknown:
        raise TypeError(f"not an option of a lock: {unknown}; there are wait, on_lost, {known}")
    several = isinstance(key, Iterable) and not isinstance(key, (str, bytes))
    keys = {"keys": list(key)} if several else {"key": key}
    options = {**options, "shared": None, "mode": "shared" if options.get("shared") else None, "wait": wait, **keys}
    return {name: value for name, value in options.items() if value is not None}


class Held(Hold):
    """A lock that is held, until `release()` or the end of a `with` block, and renewed until then.

    One that is garbage-collected is released in the background, with a `ResourceWarning`. In a forked child `check()` and `with`
    raise `LockLost`, and nothing is sent for it. It can be entered once: another `with` raises `UsageError`.
    """

    #: Set when the lock is lost. `check()` raises the reason.
    lost: threading.Event

    def __init__(self, on_lost: OnLost, *granted: Any):
        self.lost, self._callback = threading.Event(), on_lost
        super().__init__(*granted)

    def remaining(self) -> float:
        """How many seconds the lock is held unless it is renewed, as the server says; `math.inf` if it needs no renewal (files).

        Raises `LockLost` if it is lost. A server that does not answer within a second counts as dead, and all its locks as lost.
        """
        self.check()
        with suppress(Unreachable):
            self._session.wait(self._session.ask(self))
        self.check()
        return self._deadline - clock()

    def release(self) -> None:
        """Releases the lock, and returns when the backend has confirmed it. A second call does nothing.

        Raises `LockLost` if the lock was lost before, and `Unreachable` if the release is not confirmed: the server goes on trying,
        and the lock ends with its TTL at the latest.
        """
        request = self._release()
        if request:
            self._session.wait(request)

    def _on_loss(self) -> None:
        self.lost.set()
        if not self._callback:
            return
        with suppress(RuntimeError):  # no thread can be started any more, but `lost` is set
            # In a thread of its own, because it may ask this client, whose replies this thread reads.
            threading.Thread(target=self._callback, args=(self,), name="fencelock-lost", daemon=True).start()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


OnLost = Optional[Callable[[Held], object]]


class Client(Connector):
    """Locks for threads. Cheap: it connects when the first lock is taken, and clients with the same target share a connection.

    `target` is a socket of `fencelock serve --listen` (`unix:/run/fencelock.sock`, or the path alone), else FENCELOCK_SOCKET is.
    If neither is given, or if `target` is the URL of a backend (`redis://HOST`, `file:DIR`), this process starts
    `fencelock serve --stdio`, once, and again after a fork. The program is `program`, FENCELOCK_PROGRAM, or `fencelock` of this
    environment or in PATH.

    Its methods may be called by any thread, and after a fork. They raise `Unreachable` if the server or its backend does not
    answer, `UsageError` for arguments and settings that cannot be used, and the errors that they name.
    """

    def lock(self, key: Keys, *, wait: float | None = None, on_lost: OnLost = None, **options: Unpack[LockOptions]) -> Held:
        """Locks a key, or several, all or none, at once, so call it for each block: `with client.lock("k", wait=5) as held: ...`

        Waits for `wait` seconds, as long as it takes without it, and not at all with 0. `on_lost` is called with the lock, in a
        thread of its own, when it is lost. The other options are those of `LockOptions`.

        Raises `LockBusy`, with the holder and the time left, if the lock was not free in time.
        """
        return self._ask("lock", lock_params(key, wait, options), partial(Held, on_lost))  # type: ignore[no-any-return]

    def try_lock(self, key: Keys, *, on_lost: OnLost = None, **options: Unpack[LockOptions]) -> Held | None:
        """As `lock` without waiting, and `None` if the lock is not free."""
        with suppress(LockBusy):
            return self.lock(key, wait=0, on_lost=on_lost, **options)
        return None

    def request(self, method: str, **params: Any) -> Any:
        """The result of another method of the protocol, such as `client.request("status", key="k")`."""
        return self._ask(method, params)

    def close(self) -> None:
        """Ends the connection, and with it all locks, if no other client of this process uses it.

        The next call of a method connects again. A process that exits needs no `close`: its locks are released.
        """
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, params: dict[str, Any], made: Callable[..., Any] | None = None) -> Any:
        session = self._existing() or self._connect()
        return session.wait(session.request(method, params, made))
