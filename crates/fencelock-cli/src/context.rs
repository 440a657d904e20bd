use crate::args::Common;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Reporter;
use crate::signals::Signals;
use fencelock::Client;
use fencelock::backends::File;
use std::io::Write;
use std::time::Duration;

/// What every command is given: where the locks live, and how to talk.
#[derive(Debug)]
pub(crate) struct Context {
    /// `None` for this user's own directory.
    url: Option<String>,
    pub(crate) report: Reporter,
}

/// For releases and farewells under way when the program ends. What is not confirmed by then ends with its lease.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);

impl Context {
    pub(crate) fn new(common: &Common) -> Self {
        let report = Reporter { json: common.json, quiet: common.quiet, verbose: common.verbose > 0 };
        // An empty variable is one that was meant to be unset.
        let url = common.url.clone().filter(|url| !url.is_empty());
        Self { url, report }
    }

    /// The place where the locks live. It must be one that other processes see.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let url = self.url.clone().map_or_else(own_directory, Ok)?;
        let client = Client::connect(&url).await?;
        if client.capabilities().shared {
            return Ok(client);
        }
        let name = client.name();
        Err(Failure::new(Exit::Usage, format!("locks in {name} end with this program: use file: or redis: instead")))
    }

    /// Does `work`, or ends it on a signal, and leaves nothing behind.
    pub(crate) async fn with_client(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut signals = Signals::listen().map_err(|error| Failure::system("take signals", error))?;
        let client = tokio::select! {
            biased;
            signal = signals.ending() => return Ok(signal.into()),
            client = self.connect() => client?,
        };
        let done = tokio::select! {
            biased;
            signal = signals.ending() => Ok(signal.into()),
            done = work(&client) => done,
        };
        let _ = client.close(CLOSING).await;
        done
    }

    /// Writes an answer to stdout, if answers are wanted.
    pub(crate) fn answer(&self, text: &str) -> Result<(), Failure> {
        if self.report.quiet {
            return Ok(());
        }
        print(text)
    }
}

/// Writes to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::new(Exit::Output, format!("cannot write the answer: {error}")))
}

fn own_directory() -> Result<String, Failure> {
    match File::default_dir() {
        Ok(directory) => Ok(format!("file:{}", directory.display())),
        Err(unknown) => Err(Failure::new(Exit::Unreachable, format!("{unknown}; or say where with --url"))),
    }
}
