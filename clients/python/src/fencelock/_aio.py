"""Locks for the tasks of asyncio, through the same connection as those for threads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._client import Keys, LockOptions, lock_params
from ._errors import LockBusy, Unreachable
from ._session import Connector, Hold, Request, Session, clock

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncHeld(Hold):
    """A lock that is held, until `release()` or the end of an `async with` block, and renewed until then.

    If the lock is lost, the task in the block is cancelled at its next `await`, and the block raises `LockLost`. With `on_lost`
    that is called instead. A lock that is garbage-collected is released in the background, with a `ResourceWarning`. In a forked
    child `check()` raises `LockLost`, and nothing is sent for it. It can be entered once: `UsageError`.
    """

    #: Set when the lock is lost. `check()` raises the reason.
    lost: asyncio.Event

    def __init__(self, on_lost: OnLost, loop: asyncio.AbstractEventLoop, lost: asyncio.Event, *granted: Any):
        self.lost, self._loop, self._callback, self._interrupted = lost, loop, on_lost, False
        self._task: asyncio.Task[Any] | None = None
        super().__init__(*granted)

    async def remaining(self) -> float:
        """How many seconds the lock is held unless it is renewed, as the server says; `math.inf` if it needs no renewal (files).

        Raises `LockLost` if it is lost. A server that does not answer within a second counts as dead, and all its locks as lost.
        """
        self.check()
        with suppress(Unreachable):
            await _reply(self._session, self._session.ask(self))
        self.check()
        return self._deadline - clock()

    async def release(self) -> None:
        """Releases the lock, and returns when the backend has confirmed it. A second call does nothing.

        If the task is cancelled meanwhile, the release goes on. Raises `LockLost` if the lock was lost before, and `Unreachable` if
        the release is not confirmed: the server goes on trying, and the lock ends with its TTL at the latest.
        """
        request = self._release()
        if request:
            await _reply(self._session, request)

    def _on_loss(self) -> None:
        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self.lost.set()
        if self._callback:
            self._callback(self)
        elif self._task:
            self._interrupted = self._task.cancel()

    async def __aenter__(self) -> Self:
        self._enter()
        self._task = asyncio.current_task()
        return self

    async def __aexit__(self, *_: object) -> None:
        task, self._task = self._task, None
        if self._interrupted and task and sys.version_info >= (3, 11):
            task.uncancel()
        await self.release()  # raises the loss in place of the cancellation


OnLost = Optional[Callable[[AsyncHeld], object]]


class Acquisition:
    """A lock that is being acquired: `async with client.lock("k") as held:`, or `held = await client.lock("k")`."""

    def __init__(self, acquire: Callable[[], Coroutine[Any, Any, AsyncHeld]]):
        self._acquire = acquire

    def __await__(self) -> Generator[Any, None, AsyncHeld]:
        return self._acquire().__await__()

    async def __aenter__(self) -> AsyncHeld:
        self._held = await self._acquire()
        return await self._held.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._held.__aexit__()


class AsyncClient(Connector):
    """Locks for the tasks of asyncio. As `Client`, with `async with` and `await`; several loops may use one.

    If a task is cancelled while it waits for a lock, the wait is withdrawn, and a grant that comes too late is given back.
    """

    def lock(self, key: Keys, *, wait: float | None = None, on_lost: OnLost = None, **options: Unpack[LockOptions]) -> Acquisition:
        """Locks a key, or several, all or none: `async with client.lock("k", wait=5) as held: ...`

        Waits for `wait` seconds, as long as it takes without it, and not at all with 0. `on_lost` is called with the lock, by the
        loop, when it is lost. The other options are those of `LockOptions`.

        Raises `LockBusy`, with the holder and the time left, if the lock was not free in time.
        """
        return Acquisition(partial(self._acquire, lock_params(key, wait, options), on_lost))

    async def try_lock(self, key: Keys, *, on_lost: OnLost = None, **options: Unpack[LockOptions]) -> AsyncHeld | None:
        """As `lock` without waiting, and `None` if the lock is not free."""
        with suppress(LockBusy):
            return await self.lock(key, wait=0, on_lost=on_lost, **options)
        return None

    async def request(self, method: str, **params: Any) -> Any:
        """The result of another method of the protocol, such as `await client.request("status", key="k")`."""
        session = await self._session()
        return await _reply(session, session.request(method, params))

    async def close(self) -> None:
        """Ends the connection, and with it all locks, if no other client of this process uses it.

        The next call of a method connects again. A process that exits needs no `close`: its locks are released.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._leave)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _session(self) -> Session:
        session = self._existing()
        return session if session else await asyncio.get_running_loop().run_in_executor(None, self._connect)

    async def _acquire(self, params: dict[str, Any], on_lost: OnLost) -> AsyncHeld:
        session, loop = await self._session(), asyncio.get_running_loop()
        request = session.request("lock", params, partial(AsyncHeld, on_lost, loop, asyncio.Event()))
        return await _reply(session, request)  # type: ignore[no-any-return]


async def _reply(session: Session, request: Request) -> Any:
    """The result. A request whose task is cancelled is withdrawn."""
    reply = asyncio.wrap_future(request)
    try:
        await asyncio.wait({reply}, timeout=request.within)
    except BaseException:
        session.withdraw(request)
        raise
    if not reply.done():
        raise session.give_up(request)
    return reply.result()
