use crate::{Invalid, Unknown};
use std::fmt;

/// Why a URL could not be turned into a backend. It shows its reason, and has no other source.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used.
    Url(Invalid),
    /// The server does not answer, or refuses.
    Unknown(Unknown),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(invalid) => invalid.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

crate::invalid::plain_error!(ConnectError);

impl From<Invalid> for ConnectError {
    fn from(invalid: Invalid) -> Self {
        Self::Url(invalid)
    }
}

impl From<Unknown> for ConnectError {
    fn from(unknown: Unknown) -> Self {
        Self::Unknown(unknown)
    }
}
