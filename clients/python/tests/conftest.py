"""Servers for the tests: the real program, redis-server, and a peer that says what a test wants."""

import contextlib
import faulthandler
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import pytest

import fencelock

PROGRAM = os.environ.get("FENCELOCK_PROGRAM") or shutil.which("fencelock") or ""
if not os.access(PROGRAM, os.X_OK):
    pytest.exit(f"the program fencelock is missing ({PROGRAM!r}): name it with FENCELOCK_PROGRAM", returncode=1)
os.environ["FENCELOCK_PROGRAM"] = PROGRAM
# Every process that a test starts inherits this.
os.environ["FENCELOCK_PYTHON_TEST_RUN"] = uuid.uuid4().hex
for name in ("FENCELOCK_SOCKET", "FENCELOCK_URL"):
    os.environ.pop(name, None)


def processes():
    """The processes of this run, without this one."""
    mark = f"FENCELOCK_PYTHON_TEST_RUN={os.environ['FENCELOCK_PYTHON_TEST_RUN']}".encode()
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if mark in environment and int(pid) != os.getpid():
                found[int(pid)] = command
    return found


def eventually(condition, within=20.0):
    """Waits, generously, until something holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left():
    yield
    for connection in list(fencelock._session._live):
        connection.close()
    end = time.monotonic() + 20
    while processes() and time.monotonic() < end:
        time.sleep(0.05)
    left = processes()
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture(autouse=True)
def no_test_hangs():
    """A test that waits for ever ends the run, and shows where."""
    faulthandler.dump_traceback_later(180, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


class Redis:
    def __init__(self, directory):
        self.path = f"{directory}/redis.sock"
        self.url = f"redis+unix://{self.path}"
        command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", directory]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually(lambda: os.path.exists(self.path))

    def delete_everything(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            connection.sendall(b"FLUSHALL\r\n")
            assert connection.recv(99) == b"+OK\r\n"


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    server = Redis(str(tmp_path_factory.mktemp("redis")))
    yield server
    server.process.terminate()
    server.process.wait()


class Server:
    """`fencelock serve --listen`."""

    def __init__(self, directory, url, *arguments):
        self.path = f"{directory}/{uuid.uuid4().hex[:8]}.sock"
        command = [PROGRAM, "serve", "--listen", f"unix:{self.path}", "--url", url, *arguments]
        self.process = subprocess.Popen(command)
        eventually(self.answers)

    def answers(self):
        assert self.process.poll() is None, "the server has ended"
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(self.path) == 0

    def end(self):
        with contextlib.suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


@pytest.fixture
def serve(tmp_path):
    """Starts servers, which end with the test."""
    servers = []

    def start(url, *arguments):
        servers.append(Server(str(tmp_path), url, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture(params=["file", "redis"])
def url(request, tmp_path):
    return request.getfixturevalue("redis").url if request.param == "redis" else f"file:{tmp_path}"


@pytest.fixture
def key():
    return f"test:{uuid.uuid4().hex}"


class Peer:
    """Answers each message of a client with what `answer` returns, and remembers the messages."""

    def __init__(self, path, answer):
        self.path, self.answer, self.messages, self.connections = path, answer, [], 0
        self.ended = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.connection, _ = self.listener.accept()
                self.connections += 1
                for line in self.connection.makefile("rb"):
                    message = json.loads(line)
                    self.messages.append(message)
                    for reply in self.answer(message):
                        self.say(reply)
                self.ended.set()

    def say(self, message):
        self.connection.sendall(
            message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        )

    def methods(self):
        return [message["method"] for message in self.messages]

    def count(self, method):
        return self.methods().count(method)

    def close(self):
        self.listener.close()
        with contextlib.suppress(OSError, AttributeError):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()


def granted(message, hold=1):
    return {"id": message["id"], "result": {"hold": hold, "key": message["params"]["key"], "token": 40 + hold, "remaining": 30}}


def usual(message):
    """What a server answers that grants everything."""
    if message["method"] == "hello":
        return [{"id": message["id"], "result": {"protocol": 1, "version": "0", "backend": "peer"}}]
    if message["method"] == "lock":
        return [granted(message)]
    if message["method"] == "remaining":
        return [{"id": message["id"], "result": {"remaining": 30}}]
    return [{"id": message["id"], "result": {}}] if "id" in message else []


@pytest.fixture
def peer(tmp_path):
    peers = []

    def start(answer=usual):
        peers.append(Peer(f"{tmp_path}/peer{len(peers)}.sock", answer))
        return peers[-1]

    yield start
    for one in peers:
        one.close()


def python(program, *arguments, **environment):
    """Runs a program in a process of its own."""
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program, *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def forked(function):
    """Runs a function in a forked child, and says what it returned, as JSON."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                said = function()
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return said
