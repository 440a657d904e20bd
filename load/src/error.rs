use std::io;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotMeasured {
    /// The backend does not support the plan.
    #[error("{0}")]
    Plan(String),
    /// The URL is invalid.
    #[error(transparent)]
    Url(#[from] fencelock::Invalid),
    /// The server returned an error.
    #[error("the server returned an error: {0}")]
    Server(redis::RedisError),
    /// The client returned an error.
    #[error("{0:#}")]
    Client(Box<fencelock::Error>),
    /// A worker sent an invalid message, or exited early.
    #[error("a worker {0}")]
    Worker(String),
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
    /// A system call failed.
    #[error("cannot {what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl NotMeasured {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

impl From<redis::RedisError> for NotMeasured {
    fn from(error: redis::RedisError) -> Self {
        Self::Server(error)
    }
}

impl From<fencelock::Error> for NotMeasured {
    fn from(error: fencelock::Error) -> Self {
        Self::Client(Box::new(error))
    }
}
