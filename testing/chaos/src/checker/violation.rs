use std::fmt;
use std::str::FromStr;

/// The checks, with the names that a history uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table in the module documentation describes them")]
pub enum Check {
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C7,
    C8,
    C9,
    C10,
    C11,
    C12,
    C13,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 13] = [
        Self::C1,
        Self::C2,
        Self::C3,
        Self::C4,
        Self::C5,
        Self::C6,
        Self::C7,
        Self::C8,
        Self::C9,
        Self::C10,
        Self::C11,
        Self::C12,
        Self::C13,
    ];

    /// The guarantee as text.
    pub const fn guarantee(self) -> &'static str {
        match self {
            Self::C1 => "no two grants of a key have the same token, except two that read",
            Self::C2 => "an acquire that starts after a conflicting one has completed has the greater token",
            Self::C3 => {
                "no two holders in conflict assume at the same time that they hold a key, and no more permits are in use than there are"
            }
            Self::C4 => "conflicting acquires complete in the order of their tokens",
            Self::C5 => "the resource accepts no write or read of a superseded holder",
            Self::C6 => "a holder that could renew was not superseded before",
            Self::C7 => "no lock is left after all clients have stopped",
            Self::C8 => "locks are granted again after the end of a fault",
            Self::C9 => "the expected events have occurred",
            Self::C10 => "a slot that is granted is one of its set, and its key has its number",
            Self::C11 => "several keys are granted together, and the loss of one is the loss of all",
            Self::C12 => {
                "work succeeds, or starts if starts count, at most once in each window, and is reported as done only if it may have"
            }
            Self::C13 => {
                "observers of an election are notified of its terms in order, each with its value, and of a leader that stays"
            }
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Check {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|check| check.to_string() == name);
        found.ok_or_else(|| format!("unknown check {name:?}; the checks are C1 to C{}", Self::ALL.len()))
    }
}

/// A violated guarantee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check.
    pub check: Check,
    /// The key; empty if the violation concerns the whole run.
    pub key: String,
    /// The lines that prove it, from 1.
    pub lines: Vec<usize>,
    /// The time in which a fault can have caused it.
    pub span_us: (u64, u64),
    /// The description.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.check)?;
        if !self.key.is_empty() {
            write!(f, " {}", self.key)?;
        }
        write!(f, ": {}", self.text)?;
        if !self.lines.is_empty() {
            let lines: Vec<String> = self.lines.iter().map(usize::to_string).collect();
            write!(f, " (lines {})", lines.join(", "))?;
        }
        Ok(())
    }
}
