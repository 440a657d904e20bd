//! The commands on a PostgreSQL database.

use crate::backend::TestBackend;
use crate::test::{Output, Test};
use fencelock_testkit::{PostgresServer, postgres_or_skip};

/// A server with a schema, for a program whose other settings are those of a test.
fn ready() -> Option<(TestBackend, PostgresServer, String)> {
    let server = postgres_or_skip()?;
    let (backend, url) = (TestBackend::files(), format!("{}?timeout=20000", server.url("postgres")));
    run(&backend, &url, "init").starts(0, "NODE");
    Some((backend, server, url))
}

struct Printed(Output);

impl Printed {
    /// It ended with this code, and printed this.
    fn starts(self, status: i32, text: &str) {
        let Output { status: ended, stdout, stderr, .. } = self.0;
        assert!(ended == status && format!("{stdout}{stderr}").contains(text), "{ended}: {stdout}{stderr}");
    }
}

fn run(backend: &TestBackend, url: &str, line: &str) -> Printed {
    Printed(Test::new(backend, line).env("FENCELOCK_URL", url).output())
}

#[test]
fn a_command_runs_under_a_lock_that_the_other_commands_see() {
    let Some((backend, server, url)) = ready() else { return };
    // Inside, the lock is held.
    let inside = format!("{} status k --url {url}", env!("CARGO_BIN_EXE_fencelock"));
    run(&backend, &url, &format!("run k -- {inside}")).starts(75, "held by");
    run(&backend, &url, "status k").starts(0, "k: free");
    let listed = inside.replace("status k", "list");
    run(&backend, &url, &format!("run -s k -- {listed}")).starts(0, "shared");
    run(&backend, &url, &format!("run --permits 2 k -- {listed}")).starts(0, "1 of 2");
    run(&backend, &url, "run --slots 2 k -- echo in a slot").starts(0, "in a slot");
    run(&backend, &url, "run --once-per 1h daily -- echo done").starts(0, "done");
    run(&backend, &url, "run --once-per 1h daily -- echo again").starts(0, "the next window begins");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0"), "0");
}

#[test]
fn a_lock_is_broken_by_hand() {
    let Some((backend, server, url)) = ready() else { return };
    run(&backend, &url, "acquire k --ttl 1h").starts(0, "");
    run(&backend, &url, "list").starts(0, "exclusive");
    run(&backend, &url, "run -n k -- true").starts(75, "held by");
    run(&backend, &url, "break k --yes").starts(0, "broke the lock");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0"), "0");
}

#[test]
fn doctor_tries_a_lock_and_leaves_no_row() {
    let Some((backend, server, url)) = ready() else { return };
    run(&backend, &url, "doctor").starts(0, "works, tried on");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks"), "0");
    server.sql("DROP SCHEMA fencelock CASCADE");
    run(&backend, &url, "doctor").starts(69, "fencelock init");
    run(&backend, &url, "run k -- true").starts(64, "fencelock init");
}
