"""For a task of Celery or a command of Django that must not run twice at the same time.

@app.task
@exclusive("nightly-report")
def nightly_report(): ...

class Command(BaseCommand):
    @exclusive("nightly-report")
    def handle(self, *args, **options): ...
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from .. import AsyncClient, Client, LockBusy, LockOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("fencelock")
Function = TypeVar("Function", bound=Callable[..., Any])


def exclusive(
    key: str | Callable[..., str],
    *,
    wait: float | None = 0,
    on_busy: Callable[[LockBusy], Any] | None = None,
    client: Client | AsyncClient | None = None,
    **options: Unpack[LockOptions],
) -> Callable[[Function], Function]:
    """A decorator: each call of the function, or coroutine function, runs under the lock `key`.

    `key` may be a function of the arguments: `exclusive(lambda customer: f"invoice:{customer}")`. A call that does not get the lock
    within `wait` seconds, by default at once, does not run: its result is that of `on_busy`, or `None` with a warning in the log
    `fencelock`. `on_busy` may raise, as `current_task.retry(exc=busy)` of Celery or `CommandError(str(busy))` of Django. If the
    lock is lost while the function runs, `LockLost` is raised at its end. `client` and the options are those of `Client.lock`.
    """

    def busy(error: LockBusy) -> Any:
        if on_busy:
            return on_busy(error)
        log.warning("not run: %s", error)
        return None

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                held = cast(Client, client or Client()).lock(name(args, kwargs), wait=wait, **options)
            except LockBusy as error:
                return busy(error)
            with held:
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            try:
                held = await cast(AsyncClient, client or AsyncClient()).lock(name(args, kwargs), wait=wait, **options)
            except LockBusy as error:
                return busy(error)
            async with held:
                return await function(*args, **kwargs)

        return cast(Function, run_async if inspect.iscoroutinefunction(function) else run)

    def name(args: Any, kwargs: Any) -> str:
        return key(*args, **kwargs) if callable(key) else key

    return decorate
