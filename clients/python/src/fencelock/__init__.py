"""Distributed locks: a client of the program `fencelock`, without dependencies.

    import fencelock

    client = fencelock.Client()
    with client.lock("nightly-report", wait=5) as held:
        print("writing with token", held.token)

`AsyncClient` is the same for asyncio. The program holds and renews the locks, and the connection to it is the session: when this
process ends in any way, its locks are released. A lock may be lost all the same, when its backend fails or somebody breaks it.
Then `held.lost` is set, `held.check()` and the end of the block raise `LockLost`, and `on_lost` is called, or the task in an
`async with` block is cancelled. Only the fencing token protects against a process that is paused for longer than its lease: send
it with each write.
"""

from ._aio import Acquisition, AsyncClient, AsyncHeld
from ._client import Client, Held, LockOptions
from ._errors import FencelockError, LockBusy, LockLost, Unreachable, UsageError
from ._session import VERSION as __version__

__all__ = ["Acquisition", "AsyncClient", "AsyncHeld", "Client", "FencelockError", "Held"]
__all__ += ["LockBusy", "LockLost", "LockOptions", "Unreachable", "UsageError", "__version__"]
