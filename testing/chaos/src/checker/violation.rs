use std::fmt;
use std::str::FromStr;

/// The checks, by the names that a history uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table in the module says what they are")]
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
}

impl Check {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::C1, Self::C2, Self::C3, Self::C4, Self::C5, Self::C6, Self::C7, Self::C8, Self::C9];

    /// The promise, in words.
    pub const fn promise(self) -> &'static str {
        match self {
            Self::C1 => "no two grants of a key have the same token",
            Self::C2 => "an acquire that begins after another has ended has the greater token",
            Self::C3 => "no two holders believe at the same time that they hold",
            Self::C4 => "acquires end in the order of their tokens",
            Self::C5 => "the resource takes no write of a holder that was superseded there",
            Self::C6 => "who could renew was not overtaken before",
            Self::C7 => "nothing is left when all clients are gone",
            Self::C8 => "when everything is whole again, locks are granted again",
            Self::C9 => "what the run was meant to provoke did happen",
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
        found.ok_or_else(|| format!("there are the checks C1 to C9; {name:?} is none"))
    }
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// On which key; empty if it is about the whole run.
    pub key: String,
    /// The lines that show it, from 1.
    pub lines: Vec<usize>,
    /// The time in which a fault can have caused it.
    pub span_us: (u64, u64),
    /// What happened.
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
