use crate::backend::TestBackend;
use crate::running::{Running, hold, wait_until};
use crate::test::Test;

#[test]
fn wait_ends_when_the_key_is_free_and_takes_nothing() {
    let backend = TestBackend::files();
    let holder = hold(&backend, "k");
    let mut waiter = Test::new(&backend, "wait k").start();
    let expected = "fencelock: waiting for k, held by *:* for *\nfencelock: k is held by *; stopped waiting after *\n";
    Test::new(&backend, "wait -w 2 k").stderr(expected).status(75).run();
    waiter.wait_for_error("fencelock: waiting for k, held by ");
    holder.finish();
    assert_eq!(waiter.status(), 0);
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_signal_ends_the_wait() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "k");
    let waiter = Test::new(&backend, "wait k").start();
    crate::signals::has_its_handlers(&waiter);
    waiter.kill("TERM");
    assert_eq!(waiter.end().status, 143);
}

#[test]
fn a_wait_is_reported_when_it_begins_and_when_it_is_over_if_it_was_long() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = hold(&backend, "--label nightly k");
    let waiters =
        ["run k -- true", "run -q k -- true", "wait k", "wait -q k"].map(|line| Test::new(&backend, line).start());
    for loud in [&waiters[0], &waiters[2]] {
        loud.wait_for_error("fencelock: waiting for k, ");
    }
    wait_until("the line", || {
        Test::new(&backend, "--json status k").output().stdout.contains("\"waiters\":2").then_some(())
    });
    // The text at the end depends on the duration.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    holder.finish();
    let [run, quiet_run, wait, quiet_wait] = waiters.map(Running::end);
    for output in [&run, &quiet_run, &wait, &quiet_wait] {
        assert_eq!(output.status, 0, "{}", output.stderr);
    }
    let begin = "fencelock: waiting for k, *in the queue, held by *:* (nightly) for *\n";
    let expected = format!("{begin}fencelock: k was acquired, after * s\n");
    assert!(crate::test::matches(&expected, &run.stderr), "{}", run.stderr);
    let begin = "fencelock: waiting for k, held by *:* (nightly) for *\n";
    assert!(
        crate::test::matches(&format!("{begin}fencelock: k is free, after * s\n"), &wait.stderr),
        "{}",
        wait.stderr
    );
    assert_eq!((quiet_run.stderr.as_str(), quiet_wait.stderr.as_str()), ("", ""));
}

#[test]
fn verbose_output_names_the_backend_of_the_lock() {
    let backend = TestBackend::files();
    let output = Test::new(&backend, "run -v k -- true").output();
    assert!(output.stderr.contains(&format!("fencelock: k is stored at {}\n", backend.url())), "{}", output.stderr);
    let output = Test::new(&backend, "run k -- true").output();
    assert_eq!(output.stderr, "");
}

#[test]
fn a_server_that_accepts_no_locks_is_reported_once() {
    let Some(backend) = TestBackend::redis() else { return };
    // A master that does not exist: the data stay, and writes are refused.
    backend.server().command(&["REPLICAOF", "127.0.0.1", "1"]);
    let waiters = ["run -w 4 k -- true", "run --json -w 4 k -- true"].map(|line| Test::new(&backend, line).start());
    let [text, json] = waiters.map(Running::end);
    assert_eq!(text.status, 69, "{}", text.stderr);
    assert_eq!(text.stderr.matches("waiting for a reply: ").count(), 1, "{}", text.stderr);
    assert!(!text.stderr.contains("could not release"), "{}", text.stderr);
    assert_eq!(json.stderr.matches(r#""event":"unreachable""#).count(), 1, "{}", json.stderr);
}
