"""How a process reaches its server, and what it says when it cannot."""

import asyncio
import os
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import PROGRAM, eventually, forked, processes, python, usual

from fencelock import AsyncClient, Client, FencelockError, Unreachable, UsageError, _session


def servers_of(pid):
    """The servers that a process has started."""
    children = [file.read_text().split() for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for found in children for child in found if "serve --stdio" in processes().get(int(child), "")]


@pytest.mark.parametrize("form", ["unix:{}", "{}"])
def test_the_argument_names_a_socket(serve, tmp_path, key, form):
    server = serve(f"file:{tmp_path}")
    with Client(form.format(server.path), program="/not/started") as client, client.lock(key):
        assert not servers_of(os.getpid())


def test_the_variable_names_a_socket(serve, tmp_path, key, monkeypatch):
    server = serve(f"file:{tmp_path}")
    monkeypatch.setenv("FENCELOCK_SOCKET", f"unix:{server.path}")
    with Client(program="/not/started") as client, client.lock(key):
        assert not servers_of(os.getpid())


def test_the_argument_takes_precedence_over_the_variable(serve, tmp_path, key, monkeypatch):
    server = serve(f"file:{tmp_path}")
    monkeypatch.setenv("FENCELOCK_SOCKET", "/nothing/here")
    with Client(server.path) as client, client.lock(key):
        pass


def test_a_process_starts_one_server(tmp_path, key, monkeypatch):
    monkeypatch.setenv("FENCELOCK_URL", f"file:{tmp_path}")

    async def with_tasks():
        async with AsyncClient() as client, client.lock(f"{key}:async"):
            return servers_of(os.getpid())

    with Client() as one, Client() as two, one.lock(f"{key}:one"), two.lock(f"{key}:two"):
        assert len(servers_of(os.getpid())) == 1
        assert asyncio.run(with_tasks()) == servers_of(os.getpid())
    assert not servers_of(os.getpid())


def test_closing_one_client_leaves_the_locks_of_another(tmp_path, key):
    one, two = Client(f"file:{tmp_path}"), Client(f"file:{tmp_path}")
    with one.lock(f"{key}:other"), two.lock(key) as held:
        one.close()
        held.remaining()
    two.close()


def test_a_closed_client_connects_again(tmp_path, key):
    client = Client(f"file:{tmp_path}")
    for _ in range(2):
        with client, client.lock(key, wait=20):
            pass


def test_the_password_of_a_url_is_not_in_the_arguments(redis, key):
    with Client(redis.url) as client, client.lock(key):
        (server,) = servers_of(os.getpid())
        assert redis.path not in processes()[server]
        assert redis.path.encode() in pathlib.Path(f"/proc/{server}/environ").read_bytes()


@pytest.mark.parametrize("through", ["socket", "child"])
def test_programs_that_this_one_starts_inherit_no_descriptor(serve, tmp_path, key, through):
    place = serve(f"file:{tmp_path}").path if through == "socket" else f"file:{tmp_path}"
    show = [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"]
    before = subprocess.run(show, close_fds=False, capture_output=True).stdout
    with Client(place) as client, client.lock(key):
        assert subprocess.run(show, close_fds=False, capture_output=True).stdout == before


def test_a_program_that_is_missing_is_named():
    with pytest.raises(UsageError, match="cannot start '/no/such/program'.*FENCELOCK_PROGRAM.*FENCELOCK_SOCKET"):
        Client("memory:", program="/no/such/program").lock("k")


def test_a_socket_that_is_missing_is_named(tmp_path):
    with pytest.raises(Unreachable, match=f"unix:{tmp_path}/none: No such file.*being stopped, start.*fencelock serve --listen unix:{tmp_path}/none"):
        Client(f"unix:{tmp_path}/none").lock("k")


def test_a_socket_on_which_nobody_listens_is_named(serve, tmp_path):
    server = serve(f"file:{tmp_path}")
    server.process.kill()
    server.process.wait()
    with pytest.raises(Unreachable, match=f"unix:{server.path}: Connection refused.*fencelock serve --listen"):
        Client(server.path).lock("k")


def test_a_socket_without_rights_is_named_with_what_admits(serve, tmp_path):
    server = serve(f"file:{tmp_path}")
    os.chmod(server.path, 0)

    def child():
        if os.geteuid() == 0:  # who may use every socket
            os.seteuid(65534)
        Client(server.path).lock("k")

    said = forked(child)
    assert "Permission denied" in said and "--group GROUP" in said and "start" not in said


def test_a_target_that_is_neither_socket_nor_url_is_refused():
    with pytest.raises(UsageError, match="redis.example.*neither a socket.*nor the URL"):
        Client("redis.example")


def test_another_protocol_is_refused(peer):
    with pytest.raises(UsageError, match="does not speak protocol 1: install the same version"):
        Client(peer(lambda message: [{"id": message["id"], "result": {"protocol": 2}}]).path).lock("k")


def test_what_the_server_says_against_hello_is_raised(peer):
    def answer(message):
        return [{"id": message["id"], "error": {"code": 64, "message": "this server speaks the protocols 7 and 8"}}]

    with pytest.raises(UsageError, match="speaks the protocols 7 and 8"):
        Client(peer(answer).path).lock("k")


def test_what_the_server_says_before_it_closes_the_connection_is_raised(peer):
    refusing = peer()

    def answer(message):
        refusing.say({"id": None, "error": {"code": -32001, "message": "there are 100 connections already"}})
        refusing.close()
        return []

    refusing.answer = answer
    with pytest.raises(Exception, match="there are 100 connections already"):
        Client(refusing.path).lock("k")


def test_what_the_server_says_about_no_request_ends_the_connection(peer):
    """It does not know which request it was, so none would be answered."""

    def answer(message):
        if message["method"] == "lock":
            return [{"id": None, "error": {"code": -32700, "message": "this line is not JSON"}}]
        return usual(message)

    begun = time.monotonic()
    with pytest.raises(FencelockError, match="this line is not JSON"):
        Client(peer(answer).path).lock("k", wait=60)
    assert time.monotonic() - begun < 30


def test_another_server_is_not_taken_for_fencelock(redis):
    with pytest.raises(UsageError, match="is not `fencelock serve`: check the path"):
        Client(redis.path).lock("k")


def test_a_reply_that_makes_no_sense_ends_the_connection_and_the_wait(peer):
    def answer(message):
        return [{"id": message["id"], "result": {"hold": 1}}] if message["method"] == "lock" else usual(message)

    with pytest.raises(UsageError, match="is not `fencelock serve`: check the path"):
        Client(peer(answer).path).lock("k")


def test_a_server_that_refuses_its_configuration_is_quoted(capfd):
    with pytest.raises(UsageError, match='unknown scheme "reddis"; did you mean redis://'):
        Client("reddis://host").lock("k")
    assert "reddis" in capfd.readouterr().err


def test_a_server_that_ends_for_another_reason_is_named(tmp_path):
    (tmp_path / "ends").write_text("#!/bin/sh\nexit 70\n")
    (tmp_path / "ends").chmod(0o755)
    with pytest.raises(Unreachable, match=r"serve --stdio` ended the connection \(exit code 70"):
        Client("memory:", program=f"{tmp_path}/ends").lock("k")


def test_a_program_that_never_answers_is_named_in_the_time_that_the_error_says(tmp_path, monkeypatch):
    monkeypatch.setattr(_session, "REPLY_WITHIN", 3.0)
    (tmp_path / "silent").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "silent").chmod(0o755)
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="silent.*did not answer within 3 s"):
        Client("memory:", program=f"{tmp_path}/silent").lock("k")
    assert time.monotonic() - begun < 5.5
    eventually(lambda: not any("sleep 60" in command for command in processes().values()))


@pytest.mark.parametrize("empty", ["", "unix:"])
def test_an_empty_target_is_refused(monkeypatch, empty):
    with pytest.raises(UsageError, match="the target is empty: name a socket"):
        Client(empty)
    monkeypatch.setenv("FENCELOCK_SOCKET", empty)
    with pytest.raises(UsageError, match="FENCELOCK_SOCKET is empty: name a socket.*unset"):
        AsyncClient()


def test_errors_reach_tasks_too(tmp_path):
    async def main():
        await AsyncClient(f"{tmp_path}/none").lock("k")

    with pytest.raises(Unreachable, match="No such file"):
        asyncio.run(main())


def test_notifications_and_members_of_a_later_version_are_ignored(peer, key):
    later = peer()

    def answer(message):
        replies = usual(message)
        if "result" in replies[0]:
            replies[0]["result"]["later"] = True
        return [{"method": "later", "params": {}}, *replies]

    later.answer = answer
    with Client(later.path) as client, client.lock(key) as held:
        assert held.token == 41


def test_the_next_lock_connects_again_after_the_server_has_ended(serve, tmp_path, key):
    client = Client(f"file:{tmp_path}")
    client.lock(key).release()
    (server,) = servers_of(os.getpid())
    os.kill(server, 9)
    eventually(lambda: client._existing() is None)
    with client, client.lock(key, wait=20):
        assert servers_of(os.getpid()) != [server]


def test_the_program_beside_the_interpreter_is_found_without_path(tmp_path, key):
    program = """
import sys, sysconfig, fencelock
sysconfig.get_path = lambda name: sys.argv[1]
with fencelock.Client("file:" + sys.argv[1]) as client, client.lock(sys.argv[2]) as held:
    print("token", held.token)
"""
    (tmp_path / "fencelock").symlink_to(os.path.abspath(PROGRAM))
    assert "token" in python(program, str(tmp_path), key, FENCELOCK_PROGRAM="", PATH="/nowhere").stdout
