use std::fmt;

/// The subject of the finding of a trial.
pub(crate) const TRIAL: &str = "trial";

/// How much a [`Finding`] matters.
///
/// Exhaustive: a program that shows findings must not let one of a new level pass for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// As it should be.
    Fine,
    /// Works, but slower or with a lesser promise.
    Note,
    /// A promise may break.
    Warning,
    /// It does not work.
    Failure,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure => "FAILED",
        })
    }
}

/// One line of an examination: what was examined, what was found, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was examined, in a word or two.
    pub subject: &'static str,
    /// What was found, and what follows from it.
    pub text: String,
    /// What to do about it; empty if nothing.
    pub advice: String,
}

impl Finding {
    /// A finding that requires no action.
    pub fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Fine, subject, text: text.into(), advice: String::new() }
    }

    /// The finding of a trial that was not made.
    pub fn not_tried(why: impl fmt::Display, advice: impl Into<String>) -> Self {
        Self::note(TRIAL, format!("not tried: {why}"), advice)
    }

    /// A [`Level::Note`].
    pub fn note(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Note, subject, text, advice)
    }

    /// A [`Level::Warning`].
    pub fn warning(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Warning, subject, text, advice)
    }

    /// A [`Level::Failure`].
    pub fn failure(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Failure, subject, text, advice)
    }

    /// A finding with advice.
    pub fn new(level: Level, subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level, subject, text: text.into(), advice: advice.into() }
    }
}
