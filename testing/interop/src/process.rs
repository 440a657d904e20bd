use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// The timeout of a reply. A Java program takes seconds to start on a busy machine, and a count takes as long as all others.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A running peer. Dropping kills it, and it exits when this process does.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// The versions that it reported.
    pub versions: String,
}

impl Process {
    /// Starts the peer for the servers at these ports, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot start, exits, or sends an invalid message.
    pub async fn start(mut command: Command, ports: &[u16]) -> io::Result<Self> {
        command.args(ports.iter().map(u16::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or_else(|| io::Error::other("no input"))?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut this = Self { child, input, output: BufReader::new(output).lines(), versions: String::new() };
        let first = this.receive().await?;
        let versions = first.strip_prefix("ready ").ok_or_else(|| io::Error::other(first.clone()))?;
        versions.clone_into(&mut this.versions);
        Ok(this)
    }

    /// Sends a request.
    pub async fn send(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        self.input.flush().await
    }

    /// Receives the next reply.
    ///
    /// # Cancel safety
    /// No reply is lost if this future is dropped.
    pub async fn receive(&mut self) -> io::Result<String> {
        let line = timeout(TIMEOUT, self.output.next_line()).await.map_err(|_| io::Error::other("no answer"))??;
        line.ok_or_else(|| io::Error::other("the peer has exited"))
    }

    /// Sends a request and receives the reply.
    pub async fn request(&mut self, line: &str) -> io::Result<String> {
        self.send(line).await?;
        self.receive().await
    }

    /// Sends `SIGKILL`, and waits until the process has exited.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}
