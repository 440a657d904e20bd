use std::io;

/// Why a load could not be put on, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotMeasured {
    /// The plan asks for what the place cannot do.
    #[error("{0}")]
    Plan(String),
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] fencelock::Invalid),
    /// The server did not do what was asked.
    #[error("the server did not do what was asked: {0}")]
    Server(redis::RedisError),
    /// This project's own client did not.
    #[error("{0:#}")]
    Client(Box<fencelock::Error>),
    /// A worker said what it should not have, or ended too early.
    #[error("a worker {0}")]
    Worker(String),
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
    /// The operating system refused something.
    #[error("cannot {what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Its answer.
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
