//! Answers some requests in place of the server, as a proxy does that does not know every command.

use super::request;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intercept {
    /// The server answers it.
    Forward,
    /// The answer is this error: `ERR unknown command`.
    Refuse(String),
    /// The answer is this text.
    Answer(String),
    /// The connection is closed.
    Close,
}

type Rule = dyn Fn(&[String]) -> Intercept + Send + Sync;

/// The rule of a proxy, if it has one.
#[derive(Default)]
pub(super) struct Interceptor(Mutex<Option<Arc<Rule>>>);

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").finish_non_exhaustive()
    }
}

impl Interceptor {
    pub(super) fn set(&self, rule: impl Fn(&[String]) -> Intercept + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(rule));
    }

    fn rule(&self) -> Option<Arc<Rule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The beginning of a request whose rest has not arrived.
    incomplete: Vec<u8>,
}

impl Requests {
    /// The bytes for the server; `None` if the connection is to be closed. The server gives all answers, so that their order is that of
    /// the requests: an answer of the proxy is a script that returns it.
    pub(super) fn rewrite(&mut self, interceptor: &Interceptor, piece: &[u8]) -> Option<Vec<u8>> {
        let Some(rule) = interceptor.rule() else { return Some(piece.to_vec()) };
        self.incomplete.extend_from_slice(piece);
        let (mut taken, mut out) = (0, Vec::new());
        for bytes in request::whole(&self.incomplete) {
            taken += bytes.len();
            match rule(&request::words(bytes)) {
                Intercept::Forward => out.extend_from_slice(bytes),
                Intercept::Refuse(error) => out.extend(request::of(&["EVAL", "return {err = ARGV[1]}", "0", &error])),
                Intercept::Answer(text) => out.extend(request::of(&["EVAL", "return ARGV[1]", "0", &text])),
                Intercept::Close => return None,
            }
        }
        self.incomplete.drain(..taken);
        Some(out)
    }
}
