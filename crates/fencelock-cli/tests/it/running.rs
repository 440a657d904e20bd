use crate::backend::TestBackend;
use crate::test::{BINARY, Output, Test};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;
use tokio::time::Instant;

/// Far beyond what anything here takes: a test that gets here has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A program under way. It is killed when this value is dropped.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What was read of stdout so far.
    seen: String,
    stderr: Receiver<String>,
    /// What was read of stderr so far.
    errors: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command, input: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (ended, all_errors) = channel();
        let errors = Arc::new(Mutex::new(String::new()));
        let so_far = Arc::clone(&errors);
        spawn(move || {
            let mut line = Vec::new();
            while stderr.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                so_far.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
            let _ = ended.send(so_far.lock().unwrap().clone());
        });
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        spawn(move || {
            let mut line = Vec::new();
            while stdout.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Self { child, stdin: Some(stdin), lines, seen: String::new(), stderr: all_errors, errors }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its stdin.
    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Reads its stdout up to the line that contains `text`, and returns that line.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    self.seen.push_str(&line);
                    if line.contains(text) {
                        return line.trim_end().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {text:?} in time, but {:?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    let stderr = self.stderr.recv_timeout(PATIENCE).unwrap_or_default();
                    panic!("no {text:?}, but {:?}; stderr: {stderr}", self.seen)
                }
            }
        }
    }

    /// Waits until its stderr contains `text`.
    pub(crate) fn wait_for_error(&self, text: &str) {
        wait_until(text, || self.errors.lock().unwrap().contains(text).then_some(()));
    }

    /// Sends it a signal.
    pub(crate) fn kill(&self, signal: &str) {
        send(&self.pid().to_string(), signal);
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Closes its stdin and waits until it ends and all its streams are closed.
    pub(crate) fn end(mut self) -> Output {
        drop(self.stdin.take());
        let status = wait_until("the end of the program", || self.child.try_wait().unwrap());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push_str(&line);
        }
        let stderr = self.stderr.recv_timeout(PATIENCE).expect("the end of stderr: a process still has it open");
        let status = status.code().or(status.signal().map(|signal| -signal)).unwrap();
        Output { status, stdout: std::mem::take(&mut self.seen), stderr }
    }

    /// Says a line to it, after which it ends with success.
    pub(crate) fn finish(mut self) {
        self.say("\n");
        let output = self.end();
        assert_eq!(output.status, 0, "{}", output.stderr);
    }

    /// Waits for its end alone: others may have its streams. Negative for a signal.
    pub(crate) fn status(&mut self) -> i32 {
        let status = wait_until("the end of the program", || self.child.try_wait().unwrap());
        status.code().or(status.signal().map(|signal| -signal)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it is dead already. Its command dies with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has the lock of these options and this key until its stdin has a line or ends.
pub(crate) fn hold(backend: &TestBackend, options: &str) -> Running {
    let mut holder = Test::script(backend, options, "echo ready; read _; true").start();
    holder.wait_for("ready");
    holder
}

/// Copies the program under test. Another process does it: one that a thread of this process starts meanwhile would inherit the open
/// file, and the copy could not be executed while it is open for writing.
pub(crate) fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(BINARY).arg(to).status().unwrap().success());
}

/// Sends a signal to a process.
pub(crate) fn send(pid: &str, signal: &str) {
    let signal: nix::sys::signal::Signal = format!("SIG{signal}").parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.parse().unwrap()), signal).unwrap();
}

/// Polls until there is an answer.
pub(crate) fn wait_until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(answer) = answer() {
            return answer;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("{what} did not come within {PATIENCE:?}");
}

/// Until so many wait for the key.
pub(crate) fn wait_for_waiters(backend: &TestBackend, key: &str, many: u64) {
    wait_until("the queue", || {
        let output = Test::new(backend, &format!("--json status {key}")).output();
        let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        (status["waiters"] == many).then_some(())
    });
}

/// Whether a process is alive. A zombie is not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    String::from_utf8_lossy(&stat).rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Whether a process has been stopped by a signal.
pub(crate) fn is_stopped(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of(task.unwrap()).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}
