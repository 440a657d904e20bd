//! The ways of waiting that are compared.

use serde::{Deserialize, Serialize};

/// How a waiter learns that it can retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WaitStrategy {
    /// fencelock.
    Fencelock,
    /// A message on release wakes one waiter in each process, like the plain lock of Redisson.
    OnePerProcess,
    /// A message on release wakes every waiter.
    All,
    /// Every waiter retries every 100 to 200 ms.
    Polling,
}

impl WaitStrategy {
    pub(crate) const ALL: [Self; 4] = [Self::Fencelock, Self::OnePerProcess, Self::All, Self::Polling];

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Fencelock => "fencelock",
            Self::OnePerProcess => "pub/sub, one waiter per process wakes",
            Self::All => "pub/sub, every waiter wakes",
            Self::Polling => "polling every 100-200 ms",
        }
    }
}
