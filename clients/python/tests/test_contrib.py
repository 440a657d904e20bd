"""Tasks of Celery and commands of Django that must not run twice."""

import asyncio
import io
import logging
import threading
import time

import pytest
from conftest import eventually

from fencelock import AsyncClient, Client, LockLost
from fencelock.contrib import exclusive


@pytest.fixture
def client(serve, redis):
    with Client(serve(redis.url).path) as client:
        yield client


def test_a_function_that_runs_already_is_not_run_and_the_log_says_why(client, key, caplog):
    @exclusive(key, client=client, label="report")
    def report():
        """Writes it."""
        return report()

    assert report() is None
    assert report.__name__ == "report" and report.__doc__ == "Writes it."
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and key in record.getMessage() and "report" in record.getMessage()


def test_the_key_may_depend_on_the_arguments(client, key):
    @exclusive(lambda customer: f"{key}:{customer}", client=client, on_busy=lambda busy: "busy")
    def invoice(customer):
        return [invoice("a"), invoice("b")] if customer == "a" else customer

    assert invoice("a") == ["busy", "b"]


def test_a_function_that_raises_releases(client, key):
    @exclusive(key, client=client)
    def fails():
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fails()


def test_a_loss_is_raised(client, redis, key):
    @exclusive(key, client=client, ttl=2)
    def works():
        redis.delete_everything()
        time.sleep(3)

    with pytest.raises(LockLost, match=key):
        works()


def test_coroutine_functions(serve, redis, key):
    async def main():
        async with AsyncClient(serve(redis.url).path) as client:

            @exclusive(key, client=client, on_busy=lambda busy: busy.data["key"])
            async def report():
                return await report()

            assert await report() == key

    asyncio.run(main())


def test_without_a_client_the_environment_names_the_server(serve, redis, key, monkeypatch):
    monkeypatch.setenv("FENCELOCK_SOCKET", serve(redis.url).path)

    @exclusive(key, wait=5, on_busy=lambda busy: "busy")
    def report():
        return report_again()

    @exclusive(key, on_busy=lambda busy: "busy")
    def report_again():
        return "twice"

    assert report() == "busy"
    with Client() as client:
        client.lock(key, wait=0).release()


def test_an_eager_task_of_celery_does_not_run_in_itself(client, key):
    celery = pytest.importorskip("celery")
    app = celery.Celery("tests", set_as_current=False)
    app.conf.task_always_eager = True

    @app.task
    @exclusive(lambda nested: key, client=client, on_busy=lambda busy: "busy")
    def report(nested):
        return report.delay(False).get(disable_sync_subtasks=False) if nested else "ran"

    assert report.delay(True).get() == "busy"
    assert report.delay(False).get() == "ran"


@pytest.mark.filterwarnings("ignore")
def test_a_worker_of_celery_runs_a_task_once_at_a_time(client, key):
    celery = pytest.importorskip("celery")
    from celery.contrib.testing.worker import start_worker

    app = celery.Celery("tests", broker="memory://", backend="cache+memory://", set_as_current=False)
    inside, most, ran, retries = [], [], [], []
    go_on = threading.Event()

    @app.task(name="report")
    @exclusive(key, client=client, on_busy=lambda busy: "busy")
    def report():
        inside.append(1)
        most.append(len(inside))
        go_on.wait(20)
        inside.pop()
        ran.append(1)
        return "ran"

    def again(busy):
        retries.append(busy)
        raise app.current_task.retry(exc=busy, countdown=0.1)

    @app.task(bind=True, name="patient", max_retries=None)
    @exclusive(key, client=client, on_busy=again)
    def patient(self):
        return self.request.retries

    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False):
        results = [report.delay() for _ in range(4)]
        eventually(lambda: sum(result.ready() for result in results) == 3)
        retried = patient.delay()
        eventually(lambda: retries)
        go_on.set()
        assert sorted(result.get(timeout=20) for result in results) == ["busy"] * 3 + ["ran"]
        assert retried.get(timeout=20) > 0
    assert most == [1] and ran == [1]


def test_a_command_of_django_does_not_run_twice(client, key):
    pytest.importorskip("django")
    from django.conf import settings
    from django.core.management import call_command
    from django.core.management.base import BaseCommand, CommandError

    if not settings.configured:
        settings.configure()

    def refuse(busy):
        raise CommandError(str(busy), returncode=busy.code)

    class Command(BaseCommand):
        @exclusive(key, client=client, on_busy=refuse)
        def handle(self, *args, **options):
            self.stdout.write("ran")

    output = io.StringIO()
    with client.lock(key, label="another run"), pytest.raises(CommandError, match="another run") as caught:
        call_command(Command(), stdout=output)
    assert caught.value.returncode == 75 and output.getvalue() == ""
    call_command(Command(), stdout=output)
    assert output.getvalue() == "ran\n"
