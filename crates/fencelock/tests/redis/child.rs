//! Another process that uses locks: this test binary, run again with a part to play.

use fencelock_testkit::TestProcess;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// It ends with this value, and with the process that has it: its standard input closes.
#[derive(Debug)]
pub(crate) struct Actor(TestProcess);

impl Actor {
    /// Plays `part` with these arguments.
    pub(crate) fn play(part: &str, url: &str, ttl: Duration) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child::plays_its_part", "--ignored", "--nocapture", "--test-threads", "1"])
            .env("FENCELOCK_TEST_PART", format!("{part} {url} {}", ttl.as_millis()))
            .stderr(Stdio::null());
        Self(TestProcess::spawn(command).unwrap())
    }

    /// Waits for a message that begins with `word`, and returns the rest.
    pub(crate) async fn says(&mut self, word: &str) -> String {
        self.0.receive_async(&format!(">{word}")).await.expect("a message before the process ends")
    }

    /// Sends it a line.
    pub(crate) fn send(&mut self, line: &str) {
        self.0.send(line);
    }

    pub(crate) fn freeze(&self) {
        fencelock_testkit::freeze(self.0.pid()).unwrap();
    }

    pub(crate) fn thaw(&self) {
        fencelock_testkit::thaw(self.0.pid()).unwrap();
    }

    /// Sends `SIGKILL` and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ends(mut self) {
        let ended = tokio::task::spawn_blocking(move || self.0.end());
        assert!(ended.await.unwrap().success());
    }
}

fn say(line: &str) {
    println!("\n>{line}");
    std::io::stdout().flush().unwrap();
}

fn received() -> Option<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).ok().filter(|read| *read > 0).map(|_| line.trim().to_owned())
}

#[test]
#[ignore = "other tests run it as a process of its own"]
fn plays_its_part() {
    let part = std::env::var("FENCELOCK_TEST_PART").expect("only other tests run this");
    let mut words = part.split(' ');
    let (part, url) = (words.next().unwrap(), words.next().unwrap());
    let ttl = Duration::from_millis(words.next().unwrap().parse().unwrap());
    let client = fencelock::blocking::Client::connect(url).unwrap();
    let lock = client.lock("k").ttl(ttl).on_wait(|_| say("waits"));
    let guard = lock.acquire().unwrap();
    say(&format!("holds {}", guard.holder()));
    if part == "drops" {
        // The guard goes, then the client, then the process.
        return;
    }
    while let Some(question) = received() {
        match question.as_str() {
            "held?" => say(&format!("held {}", guard.is_held())),
            "end" => break,
            other => panic!("{other}"),
        }
    }
}
