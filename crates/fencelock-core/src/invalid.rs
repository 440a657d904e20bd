use std::fmt;

/// A value that the caller gave and that cannot be used, with the reason.
///
/// It names the offending value, so a message made of it needs no context.
#[derive(Clone, PartialEq, Eq, Hash)]
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

/// An error without a source. Its `Debug` is its text, because that is what a `main` prints that returns it.
macro_rules! plain_error {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl std::error::Error for $type {}
    };
}
pub(crate) use plain_error;

plain_error!(Invalid);

/// Whether both are the same but for one slip: a letter more, a letter less, another letter, or two in the wrong order. Names that are
/// less alike differ in meaning, as `force` and `foreign` do.
#[doc(hidden)]
pub fn is_slip(typed: &str, name: &str) -> bool {
    let (typed, name): (Vec<_>, Vec<_>) = (typed.chars().collect(), name.chars().collect());
    let shorter = typed.len().min(name.len());
    let begin = typed.iter().zip(&name).take_while(|(a, b)| a == b).count();
    let end = typed.iter().rev().zip(name.iter().rev()).take(shorter - begin).take_while(|(a, b)| a == b).count();
    let (typed, name) = (&typed[begin..typed.len() - end], &name[begin..name.len() - end]);
    let is_swapped = matches!((typed, name), ([a, b], [c, d]) if (a, b) == (d, c));
    begin + end > 0 && (is_swapped || typed.len().max(name.len()) == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_is_a_similar_name_and_more_is_another_name() {
        for (typed, name) in [
            ("weit", "wait"),
            ("rnu", "run"),
            ("permit", "permits"),
            ("staus", "status"),
            ("reneew", "renew"),
            ("lost", "list"),
        ] {
            assert!(is_slip(typed, name), "{typed} {name}");
        }
        for (typed, name) in
            [("force", "foreign"), ("weit", "weight"), ("exec", "elect"), ("log", "list"), ("a", "b"), ("", "run")]
        {
            assert!(!is_slip(typed, name), "{typed} {name}");
        }
    }
}
