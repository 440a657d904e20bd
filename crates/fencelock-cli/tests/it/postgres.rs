//! The commands on a PostgreSQL database.

use crate::backend::TestBackend;
use crate::test::{Output, Test};
use fencelock_testkit::{PostgresServer, postgres_or_skip};

/// A server with a schema.
fn ready() -> Option<(TestBackend, PostgresServer)> {
    let server = postgres_or_skip()?;
    let backend = TestBackend::at(&format!("{}?timeout=20000", server.url("postgres")));
    run(&backend, "init").starts(0, "NODE");
    Some((backend, server))
}

struct Printed(Output);

impl Printed {
    /// It ended with this code, and printed this.
    fn starts(self, status: i32, text: &str) {
        let Output { status: ended, stdout, stderr, .. } = self.0;
        assert!(ended == status && format!("{stdout}{stderr}").contains(text), "{ended}: {stdout}{stderr}");
    }
}

fn run(backend: &TestBackend, line: &str) -> Printed {
    Printed(Test::new(backend, line).output())
}

#[test]
fn a_command_runs_under_a_lock_that_the_other_commands_see() {
    let Some((backend, server)) = ready() else { return };
    // Inside, the lock is held.
    let inside = format!("{} status k --url {}", env!("CARGO_BIN_EXE_fencelock"), backend.url());
    run(&backend, &format!("run k -- {inside}")).starts(75, "held by");
    run(&backend, "status k").starts(0, "k: free");
    let listed = inside.replace("status k", "list");
    run(&backend, &format!("run -s k -- {listed}")).starts(0, "shared");
    run(&backend, &format!("run --permits 2 k -- {listed}")).starts(0, "1 of 2");
    run(&backend, "run --slots 2 k -- echo in a slot").starts(0, "in a slot");
    run(&backend, "run --once-per 1h daily -- echo done").starts(0, "done");
    run(&backend, "run --once-per 1h daily -- echo again").starts(0, "the next window begins");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0"), "0");
}

#[test]
fn doctor_tries_a_lock_and_leaves_no_row() {
    let Some((backend, server)) = ready() else { return };
    run(&backend, "doctor").starts(0, "a lock was acquired and released; these work: ");
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks"), "0");
    server.sql("DROP SCHEMA fencelock CASCADE");
    run(&backend, "doctor").starts(69, "fencelock init");
    run(&backend, "run k -- true").starts(64, "fencelock init");
}
