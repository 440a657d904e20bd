use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// For any one answer. A Java program takes seconds to start on a loaded machine, a count takes as long as all others.
const PATIENCE: Duration = Duration::from_secs(90);

/// A peer that runs. It is killed when this is dropped, and ends by itself when this process does.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What it said of itself.
    pub versions: String,
}

impl Process {
    /// Starts it for the servers at these ports, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, ends, or says something else.
    pub async fn start(mut command: Command, ports: &[u16]) -> io::Result<Self> {
        command.args(ports.iter().map(u16::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or_else(|| io::Error::other("no input"))?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let mut this = Self { child, input, output: BufReader::new(output).lines(), versions: String::new() };
        let first = this.hear().await?;
        let versions = first.strip_prefix("ready ").ok_or_else(|| io::Error::other(first.clone()))?;
        versions.clone_into(&mut this.versions);
        Ok(this)
    }

    /// Tells it something; the answer is to be heard.
    pub async fn tell(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        self.input.flush().await
    }

    /// Its next answer.
    ///
    /// # Cancel safety
    /// Nothing is lost when this is dropped.
    pub async fn hear(&mut self) -> io::Result<String> {
        let line = timeout(PATIENCE, self.output.next_line()).await.map_err(|_| io::Error::other("no answer"))??;
        line.ok_or_else(|| io::Error::other("it has ended"))
    }

    /// Tells it something and hears the answer.
    pub async fn ask(&mut self, line: &str) -> io::Result<String> {
        self.tell(line).await?;
        self.hear().await
    }

    /// `SIGKILL`, and waits until it is dead.
    pub async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }
}
