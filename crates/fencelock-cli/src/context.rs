use crate::args::Common;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Reporter;
use crate::secrets;
use crate::signals::Signals;
use crate::stdout;
use fencelock::backends::{ConnectError, File, lazy, on_demand};
use fencelock::{Backend, Client, Error};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
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
        Self { url: common.url.clone(), report }
    }

    /// The place where the locks live. It must be one that other processes see.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        shared(Client::builder().sharing(false).connect(&self.url()?).await?)
    }

    /// The same to be looked at only, also if its servers do not answer.
    pub(crate) async fn connect_to_look(&self) -> Result<Client, Failure> {
        of(lazy(&self.url()?).await, Failure::without_advice)
    }

    /// The same for those who wait: a server that is away when they begin is waited for as one that goes away later.
    pub(crate) async fn connect_to_wait(&self) -> Result<Client, Failure> {
        of(on_demand(&self.url()?).await, |error| error.clone().into())
    }

    /// Where the locks live. A variable that was not set makes an empty URL, and a lock of this machine alone would be taken
    /// for one that all machines share.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        let Some(url) = self.url.clone() else { return own_directory() };
        if url.trim().is_empty() {
            let why = "the URL is empty: --url and FENCELOCK_URL take file:DIR or redis://HOST; leave both out, \
                       or unset the variable, for locks in a directory of this user";
            return Err(Failure::new(Exit::Usage, why));
        }
        Ok(secrets::complete(url))
    }

    /// Does `work`, or ends it on a signal, and leaves nothing behind.
    pub(crate) async fn with_client(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        self.with(self.connect(), work).await
    }

    /// The same with a client from elsewhere.
    pub(crate) async fn with(
        &self,
        client: impl Future<Output = Result<Client, Failure>>,
        work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut signals = Signals::listen().map_err(|error| Failure::system("take signals", error))?;
        let client = tokio::select! {
            biased;
            signal = signals.ending() => return Ok(signal.into()),
            client = client => client?,
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

fn of(backend: Result<Arc<dyn Backend>, ConnectError>, told: fn(&Error) -> Failure) -> Result<Client, Failure> {
    let backend = backend.map_err(|error| {
        told(&match error {
            ConnectError::Url(invalid) => Error::Config(invalid),
            ConnectError::Unknown(cause) => Error::unreachable(cause),
            other => Error::from(other),
        })
    })?;
    shared(Client::builder().sharing(false).backend(backend)?)
}

/// Refuses locks that no other process sees.
fn shared(client: Client) -> Result<Client, Failure> {
    if client.capabilities().cross_process {
        return Ok(client);
    }
    let name = client.name();
    Err(Failure::new(Exit::Usage, format!("locks at {name} end with this program; use file:DIR or redis://HOST")))
}

/// Colours are for eyes, and not for those who said no (no-color.org).
pub(crate) fn may_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Writes to stdout. A reader that has seen enough, as in `fencelock list | head -1`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(not_written(&error)),
        _ => Ok(()),
    }
}

/// Writes to stdout what must reach somebody.
pub(crate) fn deliver(text: &str) -> Result<(), Failure> {
    if stdout::was_closed() {
        return Err(not_written(&"stdout is closed"));
    }
    write(text).map_err(|error| not_written(&error))
}

fn write(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

fn not_written(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Output, format!("cannot write the answer: {why}"))
}

fn own_directory() -> Result<String, Failure> {
    match File::default_dir() {
        Ok(directory) => Ok(format!("file:{}", directory.display())),
        Err(unknown) => Err(Failure::new(Exit::Unreachable, format!("{unknown}; or say where with --url"))),
    }
}
