//! The ways of waiting that are measured beside each other.

use serde::{Deserialize, Serialize};

/// How a waiter learns that it may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scheme {
    /// The product.
    Fencelock,
    /// A message on release wakes one waiter in each process: how Redisson's plain lock does it.
    OnePerProcess,
    /// A message on release wakes every waiter.
    Everybody,
    /// Every waiter asks each 100 to 200 ms.
    Polling,
}

impl Scheme {
    pub(crate) const ALL: [Self; 4] = [Self::Fencelock, Self::OnePerProcess, Self::Everybody, Self::Polling];

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Fencelock => "fencelock",
            Self::OnePerProcess => "pub/sub, one waiter per process wakes",
            Self::Everybody => "pub/sub, every waiter wakes",
            Self::Polling => "polling each 100-200 ms",
        }
    }
}
