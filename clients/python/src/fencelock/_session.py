"""The connection to a server of locks, which all clients of a process share that name the same server.

A thread for each connection reads replies and asks for the remaining time of holds. Nothing is ever sent by a process that did not
connect: a forked child has copies of the descriptors of its parent, and what it sent would be executed for the parent's locks.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
import weakref
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Optional

from ._errors import FencelockError, LockLost, Unreachable, UsageError, from_reply

VERSION = "0.1.0"

# A server that is frozen reports no loss. One that lives answers `remaining` from memory, in far less than this.
ANSWER_WITHIN = 1.0
# For replies that may need the backend. The server has limits of its own, which are shorter and explain more.
REPLY_WITHIN = 10.0
# The server closes a connection with a longer one.
LONGEST_LINE = 65_536

OVER = "its time is over: its max_hold, or the server did not say that it was renewed"

# A TTL on a server also runs while this machine is suspended, and CLOCK_MONOTONIC does not.
clock: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Hold:
    """What a server has granted: the part of `Held` and `AsyncHeld` that asks nobody."""

    #: The keys, in the order of the request; `key` is the first.
    keys: tuple[str, ...]
    #: The fencing token of each key.
    tokens: dict[str, int]
    #: The number of the slot, from 0; `None` unless `slots` was given.
    slot: int | None
    _on_loss: Callable[[], None]

    def __init__(self, session: Session, grant: dict[str, Any], sent: float):
        self._session, self._number = session, grant["hold"]
        self._over: FencelockError | None = None
        self._blocks = itertools.count()
        self.keys = tuple(grant.get("keys") or [grant["key"]])
        self.key = self.keys[0]
        self.tokens = dict(zip(self.keys, grant.get("tokens") or [grant["token"]]))
        self.slot = grant.get("slot")
        self._told(session, grant, sent)
        session._holds[self._number] = weakref.ref(self)

    @property
    def token(self) -> int:
        """The fencing token. Send it with each write, and let the receiver refuse smaller ones. Of several keys: `tokens`."""
        return self.tokens[self.key]

    def check(self) -> None:
        """Raises `LockLost` if the lock is lost, as far as this process knows. Asks nobody: call it before each step."""
        if not self._session.mine():
            raise LockLost(f"{self.key}: process {self._session.pid} has the lock, not its forked child: lock it in the child")
        if clock() >= self._deadline:
            self._session.lose(self._number, OVER)
        if self._over:
            raise self._over

    def _enter(self) -> None:
        self.check()
        if next(self._blocks):  # the end of one would release it in the other
            raise UsageError(f"{self.key}: a block has this lock: call `lock` for each block, also in another thread or task")

    def _told(self, session: Session, reply: dict[str, Any], sent: float) -> None:
        """Counts from when the question was sent. A hold without a lease (files) has no remaining time."""
        self._deadline = math.inf if reply["remaining"] is None else sent + reply["remaining"]
        self._ask_at = (sent + self._deadline) / 2
        session.look_at(self._ask_at)

    def _release(self) -> Request | None:
        """The request that releases it, or nothing if it was released before or belongs to another process.

        Of a lock that is lost, the server keeps the other keys until then.
        """
        request = self._session.release(self._number)
        if request:
            self._over = UsageError(f"{self.key}: the lock was released: call `lock` again")
        elif self._session.mine() and not isinstance(self._over, UsageError):
            self._session.request("release", {"hold": self._number})
            raise self._over or LockLost(f"{self.key}: the lock was lost")
        return request

    def __del__(self) -> None:
        session: Session | None = getattr(self, "_session", None)
        if session and not sys.is_finalizing() and session.release(self._number):
            message = f"{', '.join(self.keys)}: the lock was never released, so it is now"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)


class Request(futures.Future[Any]):
    """A request that waits for its reply, of which `made` makes its result."""

    def __init__(self, number: int, within: float | None, made: Callable[..., Any] | None):
        super().__init__()
        self.number, self.within, self.made, self.sent = number, within, made, clock()


class Session:
    """A connection. `ended` is why there is none any more."""

    def __init__(self, place: str, program: str | None):
        self.pid, self.ending = os.getpid(), False
        self.users: weakref.WeakSet[Connector] = weakref.WeakSet()
        self.ended: FencelockError | None = None
        self._reason: FencelockError | None = None
        self._holds: dict[int, weakref.ref[Hold]] = {}
        self._requests: dict[int, Request] = {}
        self._numbers, self._next_look = itertools.count(1), math.inf
        self._sending = threading.RLock()  # the garbage collector may send while this thread does
        self._place = place
        self.name, self._socket, self._process = _dial(place, program)
        self._socket.settimeout(ANSWER_WITHIN)
        self._incoming = self._socket.dup()  # with a timeout of its own
        _live.add(self)
        self._reader = threading.Thread(target=self._read, name="fencelock", daemon=True)
        self._reader.start()
        try:
            if self.wait(self.request("hello", {"protocol": 1, "client": f"python/{VERSION}"}))["protocol"] != 1:
                raise UsageError(f"{self.name} does not speak protocol 1: install the same version of program and client")
        except BaseException:
            if self._process:
                self._process.kill()  # it holds nothing
            self.close()
            raise

    def mine(self) -> bool:
        return self.pid == os.getpid()

    def usable(self) -> bool:
        return self.mine() and not (self.ended or self.ending)

    def request(self, method: str, params: dict[str, Any], made: Callable[..., Any] | None = None) -> Request:
        within: float | None = ANSWER_WITHIN if method == "remaining" else REPLY_WITHIN
        if method in ("lock", "elect", "once"):
            wait = params.get("wait")
            if wait is not None and not (isinstance(wait, (int, float)) and 0 <= wait < threading.TIMEOUT_MAX - REPLY_WITHIN):
                raise UsageError(f"wait: {wait!r} is no time in seconds")
            within = None if wait is None else wait + REPLY_WITHIN
        request = Request(next(self._numbers), within, made)
        line = _line(id=request.number, method=method, params=params)
        self._requests[request.number] = request
        self._send(line)
        if self.ended:
            self._settle(request, error=self.ended)
        return request

    def wait(self, request: Request) -> Any:
        """The result. A request whose caller is interrupted is withdrawn."""
        try:
            futures.wait([request], request.within)
        except BaseException:
            self.withdraw(request)
            raise
        if not request.done():
            raise self.give_up(request)
        return request.result()

    def give_up(self, request: Request) -> FencelockError:
        """Ends the connection to a server that does not answer: whether it still renews is unknown, so the locks count as lost."""
        self._break(Unreachable(f"{self.name} did not answer within {request.within:g} s: it is stopped or overloaded"))
        if threading.current_thread() is not self._reader:
            self._reader.join(ANSWER_WITHIN)
        return self.ended or Unreachable(f"{self.name} did not answer")

    def withdraw(self, request: Request) -> None:
        """Cancels a request, so that nothing is held unseen. A grant that is on its way is given back when it arrives."""
        if request.cancel():
            self._send(_line(method="cancel", params={"id": request.number}))
        elif not request.exception() and isinstance(request.result(), Hold):
            self.release(request.result()._number)

    def release(self, number: int) -> Request | None:
        """Releases a hold, if there is one of this number."""
        ref = self._holds.pop(number, None) if self.mine() else None
        return self.request("release", {"hold": number}) if ref else None

    def ask(self, hold: Hold) -> Request:
        """Asks how long the hold remains."""
        return self.request("remaining", {"hold": hold._number}, hold._told)

    def look_at(self, time: float) -> None:
        self._next_look = min(self._next_look, time)

    def lose(self, number: int, cause: str | None) -> None:
        """Reports a loss, once, unless the hold was released before. A server that did not tell it may renew the lock: it ends."""
        ref = self._holds.pop(number, None)
        hold = ref and ref()
        if hold:
            hold._over = LockLost(f"{', '.join(hold.keys)}: the lock was lost: {cause}", {"cause": cause})
            hold._on_loss()
        if ref and cause == OVER:
            self.request("release", {"hold": number})

    def close(self) -> None:
        """Ends the connection, and with it all holds. In a forked child that of the parent goes on."""
        if self.mine():
            self._break(Unreachable(f"the connection to {self.name} was closed"))
            self._reader.join(REPLY_WITHIN)
            if self._process:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(REPLY_WITHIN)  # it releases what was held
                self._process.kill()
                self._process.wait()

    def abandon(self) -> None:
        """In a forked child: closes its copies of the descriptors. Their numbers stay taken: objects will close them again."""
        with open(os.devnull, "rb") as null:
            for copy in (self._socket, self._incoming):
                if copy.fileno() >= 0:
                    os.dup2(null.fileno(), copy.fileno(), inheritable=False)

    def _send(self, line: bytes) -> None:
        if not self.mine():  # and a thread of the parent may have kept the lock
            return
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError:
            self._break(None)
        except BaseException:  # a line may have been sent in part
            self._break(Unreachable(f"a request to {self.name} was interrupted"))
            raise

    def _break(self, reason: FencelockError | None) -> None:
        """Makes the reader end."""
        self._reason = self._reason or reason
        with suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        rest = b""
        try:
            while True:
                self._incoming.settimeout(None if self._next_look == math.inf else max(self._next_look - clock(), 0))
                read = None
                with suppress(socket.timeout, BlockingIOError):
                    read = self._incoming.recv(1 << 16)
                if read == b"":
                    break
                *lines, rest = (rest + (read or b"")).split(b"\n")
                for line in lines:
                    self._receive(json.loads(line))
                if clock() >= self._next_look:
                    self._look(drained=read is None)
        except OSError:
            pass  # the end of the process at the other end says more
        except Exception as error:
            self._reason = UsageError(f"what answers at {self.name} is not `fencelock serve`: check the path ({error!r})")
        if self.mine():
            self._end()

    def _receive(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            error = from_reply(message["error"]) if "error" in message else None
            request = self._requests.get(message["id"])
            if request:
                self._answer(request, message.get("result"), error)
            elif message["id"] is None:  # about no request: the server closes the connection
                self._break(error)
        elif message["method"] == "lost":
            self.lose(message["params"]["hold"], message["params"].get("cause"))
        elif message["method"] == "ending":  # its end ends the connection
            self.ending = True

    def _answer(self, request: Request, result: Any, error: FencelockError | None) -> None:
        """Ends a request. What came with a grant may be as old as the request, so after a long wait the server is asked again."""
        sent, told = request.sent, (result or {}).get("remaining") if request.made else None
        if error or told is None or "hold" not in result or clock() - sent < told / 2:
            return self._settle(request, result, error, sent)

        def confirm(_: Session, told: dict[str, Any], sent: float) -> None:
            self._settle(request, {**result, **told}, sent=sent)

        question = self.request("remaining", {"hold": result["hold"]}, confirm)
        question.add_done_callback(lambda done: self._settle(request, error=done.exception()) if done.exception() else None)
        self.look_at(question.sent + ANSWER_WITHIN)

    def _settle(self, request: Request, result: Any = None, error: Any = None, sent: float = 0) -> None:
        """Ends a request, unless it was withdrawn: then what was granted is given back."""
        if not error and request.made:
            known = self._holds.get(result.get("hold"))  # the same owner asked again
            result = (known and known()) or request.made(self, result, sent)
        try:
            if error:
                request.set_exception(error)
            else:
                request.set_result(result)
        except futures.InvalidStateError:
            if isinstance(result, Hold):
                self.release(result._number)
        self._requests.pop(request.number, None)

    def _look(self, drained: bool) -> None:
        """Asks for the remaining time of holds, and counts as lost those whose time is over or whose question has no answer.

        A process that was paused may have answers that it has not read: they are `drained` first.
        """
        now, self._next_look = clock(), math.inf
        for hold in filter(None, [ref() for ref in list(self._holds.values())]):
            if now >= hold._deadline and drained:
                self.lose(hold._number, OVER)
            elif hold._ask_at <= now < hold._deadline:  # and again later, if the server cannot say
                hold._ask_at = max((now + hold._deadline) / 2, min(now + ANSWER_WITHIN, hold._deadline))
                self.ask(hold)
            self.look_at(hold._ask_at)
        for question in [request for request in list(self._requests.values()) if request.within == ANSWER_WITHIN]:
            self.look_at(question.sent + ANSWER_WITHIN)
            if drained and now >= question.sent + ANSWER_WITHIN:
                self.give_up(question)

    def _end(self) -> None:
        self._socket.close()
        self._incoming.close()
        code = ""
        if self._process and not self._reason:
            with suppress(subprocess.TimeoutExpired):
                code = f" (exit code {self._process.wait(ANSWER_WITHIN)}: see its message on stderr)"
                if self._process.returncode == UsageError.code:
                    self._reason = UsageError(f"{self.name} cannot start: {_refusal(self._place, self._process)}")
        self.ended = self._reason or Unreachable(f"{self.name} ended the connection{code}")
        for number in list(self._holds):
            self.lose(number, str(self.ended))
        for request in list(self._requests.values()):
            self._settle(request, error=self.ended)
        _live.discard(self)


Target = tuple[str, Optional[str]]  # a socket, the URL of a backend, or nothing; the program
_live: set[Session] = set()
_sessions: dict[Target, Session] = {}
# A lock for each process, made when it first connects: a forked child cannot use that of its parent, and gevent may come later.
_connecting: dict[int, threading.Lock] = {}


class Connector:
    """What both clients have: a target, and a part in the connection of this process to it."""

    def __init__(self, target: str | None = None, *, program: str | None = None):
        named = os.environ.get("FENCELOCK_SOCKET") if target is None else target
        place = named[len("unix:") :] if named and named.startswith("unix:") else named or ""
        if named is not None and not place:
            name = "FENCELOCK_SOCKET" if target is None else "the target"
            raise UsageError(f"{name} is empty: name a socket (`unix:/run/lock.sock`), or leave it unset to start a server")
        if place and not place.startswith("/") and ":" not in place:
            raise UsageError(f"{place!r} is neither a socket (`unix:/run/lock.sock`) nor the URL of a backend (`redis://HOST`)")
        self._target: Target = (place, program)

    def _existing(self) -> Session | None:
        session = _sessions.get(self._target)
        return session if session and session.usable() and self in session.users else None

    def _connect(self) -> Session:
        with _connecting.setdefault(os.getpid(), threading.Lock()):
            session = _sessions.get(self._target)
            if not (session and session.usable()):
                session = _sessions[self._target] = Session(*self._target)
            session.users.add(self)
            return session

    def _leave(self) -> None:
        with _connecting.setdefault(os.getpid(), threading.Lock()):
            session = self._existing()
            if session:
                session.users.discard(self)
                if not session.users:
                    session.close()


def _forked() -> None:
    while _live:
        _live.pop().abandon()


os.register_at_fork(after_in_child=_forked)


def _dial(place: str, program: str | None) -> tuple[str, socket.socket, subprocess.Popen[bytes] | None]:
    if place.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(REPLY_WITHIN)
            connection.connect(place)
        except OSError as error:
            connection.close()
            advice = f"if no server runs there, or one that is being stopped, start `fencelock serve --listen unix:{place}`"
            if isinstance(error, PermissionError):
                advice = "its server admits a group with `--mode 0660 --group GROUP`"
            raise Unreachable(f"cannot connect to unix:{place}: {error.strerror or error}: {advice}") from error
        return f"unix:{place}", connection, None
    # The program of the environment of this interpreter, which need not be activated, or that in PATH.
    beside = os.path.join(sysconfig.get_path("scripts"), "fencelock")
    program = program or os.environ.get("FENCELOCK_PROGRAM") or (beside if os.access(beside, os.X_OK) else "fencelock")
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            command, end = [program, "serve", "--stdio"], theirs.fileno()
            return f"`{program} serve --stdio`", ours, subprocess.Popen(command, stdin=end, stdout=end, env=_environment(place))
    except OSError as error:
        ours.close()
        advice = "install the program fencelock, or name it with FENCELOCK_PROGRAM, or a socket of its server with FENCELOCK_SOCKET"
        raise UsageError(f"cannot start {program!r}: {error.strerror}: {advice}") from error


def _environment(place: str) -> dict[str, str] | None:
    """A URL may have a password, and others can read arguments."""
    return {**os.environ, "FENCELOCK_URL": place} if place else None


def _refusal(place: str, process: subprocess.Popen[bytes]) -> str:
    """The last line that a server says when it refuses its settings. Its stderr is that of this process, so it is asked again."""
    said, env = b"", _environment(place)
    with suppress(subprocess.TimeoutExpired):
        said = subprocess.run(process.args, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=ANSWER_WITHIN).stderr
    return said.decode(errors="replace").strip().rpartition("\n")[2] or "see its message on stderr"


def _line(**message: Any) -> bytes:
    """A message as it is sent."""
    try:
        line = json.dumps({"jsonrpc": "2.0", **message}, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise UsageError(f"a value cannot be sent: {error}") from error
    if len(line) > LONGEST_LINE:
        raise UsageError(f"a request has {len(line)} bytes, and a server takes {LONGEST_LINE}: use shorter keys, or fewer")
    return line
