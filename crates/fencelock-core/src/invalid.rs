use std::fmt;

/// A value that the caller gave and that cannot be used, with the reason.
///
/// It names the offending value, so a message made of it needs no context.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Invalid(String);

impl Invalid {
    /// `what` names the value and says what is wrong with it and what would be right.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}
