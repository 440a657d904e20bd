//! Locks on stores of objects: on one in this process that has the faults of real ones, and the conformance suite on real servers.
//! `scripts/test-servers` gets these; a path in the environment adds each of them: `FENCELOCK_WEED`, `FENCELOCK_VERSITYGW`,
//! `FENCELOCK_AZURITE`, `FENCELOCK_FAKE_GCS`.
#![allow(missing_docs, clippy::unwrap_used)]

mod facts;
mod servers;

use libtest_mimic::Arguments;
use std::process::{Command, ExitCode};

/// The servers accept any, or those that they document.
const CREDENTIALS: [(&str, &str); 6] = [
    ("AWS_ACCESS_KEY_ID", "any"),
    ("AWS_SECRET_ACCESS_KEY", "any-secret"),
    ("AWS_REGION", "us-east-1"),
    ("AZURE_STORAGE_ACCOUNT_KEY", servers::AZURITE_KEY),
    // An endpoint in the URL takes precedence.
    ("AZURE_STORAGE_USE_EMULATOR", "true"),
    ("GOOGLE_BEARER_TOKEN", "any"),
];
const IS_SET: &str = "FENCELOCK_TEST_CREDENTIALS";

fn main() -> ExitCode {
    // The credentials of a store come from the environment, which a program cannot change safely.
    if std::env::var_os(IS_SET).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let status = again.args(std::env::args().skip(1)).envs(CREDENTIALS).env(IS_SET, "yes").status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut arguments = Arguments::from_args();
    // The cases wait for leases to end, and the servers share the processors with them.
    arguments.test_threads.get_or_insert(4);
    let mut trials = facts::trials();
    let servers = if arguments.list { Vec::new() } else { servers::start() };
    trials.extend(servers::trials(&servers));
    libtest_mimic::run(&arguments, trials).exit_code()
}
