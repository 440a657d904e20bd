//! Another process that uses locks: this test binary, run again with a part to play.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Dies with this value, and with the process that has it: its standard input closes.
#[derive(Debug)]
pub(crate) struct Actor {
    child: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Actor {
    /// Plays `part` with these arguments.
    pub(crate) fn play(part: &str, url: &str, ttl: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::plays_its_part", "--ignored", "--nocapture", "--test-threads", "1"])
            .env("FENCELOCK_TEST_PART", format!("{part} {url} {}", ttl.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = child.stdout.take().map(BufReader::new);
        Self { child, said }
    }

    /// Waits for it to say something that begins with `word`, and gives the rest.
    pub(crate) async fn says(&mut self, word: &str) -> String {
        let (word, mut said) = (word.to_owned(), self.said.take().unwrap());
        let reading = tokio::task::spawn_blocking(move || {
            loop {
                let mut line = String::new();
                assert!(said.read_line(&mut line).unwrap() > 0, "it ended without saying {word:?}");
                if let Some(rest) = line.split_once('>').and_then(|(_, line)| line.trim_end().strip_prefix(&word)) {
                    return (said, rest.trim().to_owned());
                }
            }
        });
        let (said, rest) = reading.await.unwrap();
        self.said = Some(said);
        rest
    }

    /// Sends it a line.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn freeze(&self) {
        fencelock_testkit::freeze(self.child.id()).unwrap();
    }

    pub(crate) fn thaw(&self) {
        fencelock_testkit::thaw(self.child.id()).unwrap();
    }

    /// `SIGKILL`, and nothing of it is left.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its own end.
    pub(crate) async fn ends(mut self) {
        let ended = tokio::task::spawn_blocking(move || {
            drop(self.child.stdin.take());
            self.child.wait().unwrap().success()
        });
        assert!(ended.await.unwrap());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // Both fail only if it is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: &str) {
    println!("\n>{line}");
    std::io::stdout().flush().unwrap();
}

fn heard() -> Option<String> {
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
    while let Some(question) = heard() {
        match question.as_str() {
            "held?" => say(&format!("held {}", guard.is_held())),
            "end" => break,
            other => panic!("{other}"),
        }
    }
}
