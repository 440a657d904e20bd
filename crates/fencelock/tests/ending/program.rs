//! Running this binary again.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

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

/// Tells the one with the tests something, and waits until it lets this program go on.
pub(crate) fn say_and_wait(word: &str) {
    println!("{word}");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a program.
pub(crate) fn start(name: &str, url: &str) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(NAME, name).env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    Running { child, said }
}

/// Runs a program to its end.
pub(crate) fn run(name: &str, url: &str) -> ExitStatus {
    start(name, url).end()
}

/// A program; it dies with this value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Waits until it says this.
    pub(crate) fn says(&mut self, word: &str) {
        let mut said = String::new();
        self.said.read_line(&mut said).unwrap();
        assert_eq!(said.trim_end(), word);
    }

    /// Lets it go on.
    pub(crate) fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits for its own end, after letting it go on. The bound is for machines that are slow, and for programs that hang.
    pub(crate) fn end(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        for _ in 0..12_000 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
