use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::report::Reporter;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::{secrets, stdout};
#[cfg(feature = "file")]
use fencelock::backends::File;
use fencelock::backends::{lazy, on_demand, scheme_of};
use fencelock::{Builder, Client, Error};
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

/// The context of a command: the settings and the output options.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    settings: Result<Settings, Failure>,
    /// Whether the command acquires no lock, and so creates no directory.
    only_inspects: bool,
    pub(crate) report: Reporter,
}

/// The time limit for the release of a lock. An unconfirmed lock ends with its lease.
pub(crate) const CLOSING: Duration = Duration::from_secs(2);
/// The time limit at exit for what is not a lock: waits that were given up. Their releases are sent by then. A server that has not
/// replied is not waited for: the place in its queue ends by itself.
pub(crate) const LEAVING: Duration = Duration::from_millis(250);

/// That limit. Servers that did not answer are not waited for here: the end of the runtime tries once more, with connections of its own.
pub(crate) fn leaving<T>(ended: &Result<T, Failure>) -> Duration {
    if ended.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable) { Duration::ZERO } else { LEAVING }
}

impl Context {
    pub(crate) fn new(common: &Common, settings: Result<Settings, Failure>, only_inspects: bool) -> Self {
        let report = Reporter { json: common.json, quiet: common.quiet, verbose: common.verbose > 0 };
        let settings = settings.map(|settings| settings.with_url(common.url.as_deref()));
        Self { settings, only_inspects, report }
    }

    /// Connects to the backend. It must be visible to other processes.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let client = alone().connect(&self.url()?).await;
        self.usable(client.map_err(Failure::from))
    }

    /// Connects for diagnosis, also if the servers do not answer.
    pub(crate) async fn connect_to_inspect(&self) -> Result<Client, Failure> {
        let backend = lazy(&self.url()?).await.map_err(|error| Failure::without_advice(&error.into()));
        self.usable(backend.and_then(|backend| Ok(alone().backend(backend)?)))
    }

    /// Connects for commands that wait: an unreachable server is retried, also at the start.
    pub(crate) async fn connect_to_wait(&self) -> Result<Client, Failure> {
        self.connect_on_demand(alone()).await
    }

    /// Connects like [`Self::connect_to_wait`], with other settings of the client.
    pub(crate) async fn connect_on_demand(&self, settings: Builder) -> Result<Client, Failure> {
        let url = self.url()?;
        if !self.only_inspects && self.settings()?.url()?.is_none() {
            self.report.tell_default(&url);
        }
        let backend = on_demand(&url).await.map_err(|error| Error::from(error).into());
        self.usable(backend.and_then(|backend| Ok(settings.backend(backend)?)))
    }

    /// Refuses a backend that other processes do not see, and names the file of a URL that cannot be used.
    fn usable(&self, client: Result<Client, Failure>) -> Result<Client, Failure> {
        let usable = client.and_then(|client| {
            if client.capabilities().cross_process {
                return Ok(client);
            }
            let name = client.name();
            let why = "end with this process, and no other one sees them; use file:DIR or redis://HOST";
            Err(Failure::new(Exit::Usage, format!("locks at {name} {why}")))
        });
        usable
            .map_err(|failure| self.settings.as_ref().map_or(failure.clone(), |settings| settings.with_origin(failure)))
    }

    /// The backend URL.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match self.settings()?.url()? {
            Some(url) => secrets::complete(url.to_owned()),
            None => own_directory(self.only_inspects),
        }
    }

    /// What the URL says beside the address, in one order.
    pub(crate) fn options(&self) -> Result<String, Failure> {
        let url = self.url()?;
        let mut options: Vec<_> = url.split(['?', '&']).skip(1).filter(|option| !option.is_empty()).collect();
        options.sort_unstable();
        Ok(options.join("&"))
    }

    /// The settings. A file that cannot be used is an error of every command that needs a backend.
    pub(crate) fn settings(&self) -> Result<&Settings, Failure> {
        self.settings.as_ref().map_err(Clone::clone)
    }

    /// The backend of this client, in a form that can be compared.
    pub(crate) fn identity(&self, client: &Client) -> Result<String, Failure> {
        let (url, name) = (self.url()?, client.name());
        Ok(scheme_of(&url).map_or_else(|_| name.clone(), |scheme| scheme.identity(&url, &name)))
    }

    /// Runs `work` until it completes or a signal arrives, and closes the client.
    pub(crate) async fn with_client(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        self.with(self.connect(), work).await
    }

    /// Like [`Self::with_client`], with a given client.
    pub(crate) async fn with(
        &self,
        client: impl Future<Output = Result<Client, Failure>>,
        work: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut signals = Signals::listen().map_err(|error| Failure::system("handle signals", error))?;
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
        let _ = client.close(leaving(&done)).await;
        done
    }

    /// Writes a result as one line: JSON, or text unless `-q` is given.
    pub(crate) fn answer_with(&self, json: &Value, text: &str) -> Result<Exit, Failure> {
        let answer = if self.report.json { &json.to_string() } else { text };
        self.answer(&format!("{answer}\n")).map(|()| Exit::Success)
    }

    /// Writes a result to stdout. With `-q` only programs read it, as JSON.
    pub(crate) fn answer(&self, text: &str) -> Result<(), Failure> {
        if self.report.quiet && !self.report.json {
            return Ok(());
        }
        print(text)
    }
}

/// The client of one command, which claims once.
fn alone() -> Builder {
    Client::builder().sharing(false)
}

/// Whether stdout is a terminal and `NO_COLOR` is not set (no-color.org).
pub(crate) fn may_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// Writes to stdout. A closed pipe, as in `fencelock list | head -1`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_next(text).map(drop)
}

/// Writes one of many lines to stdout. `false` if the reader has closed its end.
pub(crate) fn print_next(text: &str) -> Result<bool, Failure> {
    delivered(write(text))
}

/// Whether a reader has what was written. A closed pipe is not an error.
pub(crate) fn delivered(written: std::io::Result<()>) -> Result<bool, Failure> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(|error| not_written(&error)),
    }
}

/// Writes to stdout, and fails if the output is not delivered.
pub(crate) fn write_delivered(text: &str) -> Result<(), Failure> {
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
    Failure::new(Exit::Output, format!("cannot write the output: {why}"))
}

#[cfg(feature = "file")]
fn own_directory(only_inspects: bool) -> Result<String, Failure> {
    let directory = if only_inspects { File::default_dir_to_inspect() } else { File::default_dir() };
    match directory {
        Ok(directory) => Ok(format!("file:{}", directory.display())),
        Err(unknown) => Err(Failure::new(Exit::Unreachable, format!("{unknown}; or set --url"))),
    }
}

#[cfg(not(feature = "file"))]
fn own_directory(_: bool) -> Result<String, Failure> {
    let why = "this program is built without locks in files, so there is no default URL: set --url or FENCELOCK_URL";
    Err(Failure::new(Exit::Usage, why))
}
