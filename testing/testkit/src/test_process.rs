use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A process that has not ended after so many pauses hangs.
const MAX_PAUSES: u32 = 12_000;
const PAUSE: Duration = Duration::from_millis(5);

/// A child process that a test controls through its standard input and output. Dropping the value kills it.
#[derive(Debug)]
pub struct TestProcess {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl TestProcess {
    /// Starts a command.
    ///
    /// # Errors
    /// If the command cannot be executed.
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (sender, lines) = unbounded_channel();
        let stdout = child.stdout.take().map(BufReader::new);
        std::thread::spawn(move || {
            let mut lines = stdout.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, lines })
    }

    /// Writes a line to the standard input of the process.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn send(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("an open standard input");
        writeln!(stdin, "{line}").expect("a process that reads its standard input");
    }

    /// Waits for the next line with `mark`, and returns the rest of the line after it; `None` if the output ends. Blocks
    /// the thread.
    pub fn receive(&mut self, mark: &str) -> Option<String> {
        std::iter::from_fn(|| self.lines.blocking_recv()).find_map(|line| rest(&line, mark))
    }

    /// Like [`TestProcess::receive`], for async tests.
    pub async fn receive_async(&mut self, mark: &str) -> Option<String> {
        loop {
            if let Some(rest) = rest(&self.lines.recv().await?, mark) {
                return Some(rest);
            }
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and waits until it has ended.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("a process to kill");
        self.child.wait().expect("the end of a killed process");
    }

    /// Closes the standard input of the process and waits until it ends. Blocks the thread.
    ///
    /// # Panics
    /// If it does not end within a minute.
    pub fn end(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        for _ in 0..MAX_PAUSES {
            if let Some(status) = self.child.try_wait().expect("the state of a child") {
                return status;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("the process does not end");
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(line: &str, mark: &str) -> Option<String> {
    line.split_once(mark).map(|(_, rest)| rest.trim().to_owned())
}
