//! The commands on a PostgreSQL database.

use crate::backend::TestBackend;
use crate::test::Test;
use fencelock_testkit::{PostgresServer, postgres_or_skip};

/// A server with a schema.
fn ready() -> Option<(TestBackend, PostgresServer)> {
    let server = postgres_or_skip()?;
    let backend = TestBackend::at(&format!("{}?timeout=20000", server.url("postgres")));
    Test::new(&backend, "init").says(0, &["NODE"]);
    Some((backend, server))
}

#[test]
fn a_command_runs_under_a_lock_that_the_other_commands_see() {
    let Some((backend, server)) = ready() else { return };
    // Inside, the lock is held.
    let inside = format!("{} status k --url {}", env!("CARGO_BIN_EXE_fencelock"), backend.url());
    Test::new(&backend, &format!("run k -- {inside}")).says(75, &["held by"]);
    Test::new(&backend, "status k").says(0, &["k: free"]);
    let listed = inside.replace("status k", "list");
    Test::new(&backend, &format!("run -s k -- {listed}")).says(0, &["shared"]);
    Test::new(&backend, &format!("run --permits 2 k -- {listed}")).says(0, &["1 of 2"]);
    Test::new(&backend, "run --slots 2 k -- echo in a slot").says(0, &["in a slot"]);
    Test::new(&backend, "run --once-per 1h daily -- echo done").says(0, &["done"]);
    Test::new(&backend, "run --once-per 1h daily -- echo again").says(0, &["the next window begins"]);
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks WHERE ends > 0"), "0");
}

#[test]
fn doctor_tries_a_lock_and_leaves_no_row() {
    let Some((backend, server)) = ready() else { return };
    Test::new(&backend, "doctor").says(0, &["a lock was acquired and released; these work: "]);
    assert_eq!(server.sql("SELECT count(*) FROM fencelock.locks"), "0");
    server.sql("DROP SCHEMA fencelock CASCADE");
    Test::new(&backend, "doctor").says(69, &["fencelock init"]);
    Test::new(&backend, "run k -- true").says(64, &["fencelock init"]);
}
