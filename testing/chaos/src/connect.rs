use crate::Failure;
use crate::recorder::{micros, now};
use fencelock::blocking::Client;
use std::time::Duration;

/// Enough for a server that has just started on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Connects once the servers answer.
pub(crate) fn connect(url: &str) -> Result<Client, Failure> {
    once_answered(|| Client::connect(url))
}

/// Repeats a request: the timeouts of a run are short, so one request without a reply proves nothing.
pub(crate) fn once_answered<T, E: Into<Failure>>(mut request: impl FnMut() -> Result<T, E>) -> Result<T, Failure> {
    let until = now() + micros(TIMEOUT);
    loop {
        match request() {
            Err(_) if now() < until => std::thread::sleep(PAUSE),
            answer => return answer.map_err(Into::into),
        }
    }
}
