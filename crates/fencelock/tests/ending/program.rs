//! Running this binary again.

use fencelock_testkit::TestProcess;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};

const NAME: &str = "FENCELOCK_TEST_PROGRAM";
const URL: &str = "FENCELOCK_TEST_URL";

/// What this process is to do, if it is not the one with the tests.
pub(crate) fn name() -> Option<String> {
    std::env::var(NAME).ok()
}

/// Where the locks of the program live.
pub(crate) fn url() -> String {
    std::env::var(URL).unwrap()
}

/// Sends a word to the process with the tests, and waits until it answers.
pub(crate) fn say_and_wait(word: &str) {
    println!("{word}");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a program, which ends with the value.
pub(crate) fn start(name: &str, url: &str) -> TestProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(NAME, name).env(URL, url).stderr(Stdio::null());
    TestProcess::spawn(command).unwrap()
}

/// Runs a program to its end.
pub(crate) fn run(name: &str, url: &str) -> ExitStatus {
    start(name, url).end()
}

/// Waits for this word from a program.
pub(crate) fn wait_for(word: &str, program: &mut TestProcess) {
    assert_eq!(program.receive(word).as_deref(), Some(""), "{word}");
}
