use crate::error::Error;
use std::fmt;

/// Why [`OncePerWindow::run`](super::OncePerWindow::run) returned no reliable value.
///
/// Exhaustive, because there are exactly three cases. `{:#}` uses the alternate form of the error that it contains.
#[must_use = "it shows whether the work was done, and whether it counts"]
#[derive(Clone, PartialEq, Eq)]
pub enum OnceError<T, E> {
    /// The body did not complete: it was not called, or the lock was lost ([`Error::Lost`]) and the body dropped.
    Lock(Error),
    /// The body returned this error. The window stays open, unless starts count.
    Body(E),
    /// The body returned this value, but its success may not be recorded: the lock was lost, or the backend did not reply. The work
    /// may run again in this window.
    NotCounted {
        /// The value of the body.
        value: T,
        /// The reason.
        error: Error,
    },
}

impl<T, E> From<Error> for OnceError<T, E> {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl<T, E: fmt::Display> fmt::Display for OnceError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Body(error) => error.fmt(f),
            Self::NotCounted { error, .. } => {
                f.write_str("the work is done, but its success is not recorded: ")?;
                error.fmt(f)
            }
        }
    }
}

/// Omits the value, which need not implement `Debug`.
impl<T, E: fmt::Debug> fmt::Debug for OnceError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => f.debug_tuple("Lock").field(error).finish(),
            Self::Body(error) => f.debug_tuple("Body").field(error).finish(),
            Self::NotCounted { error, .. } => {
                f.debug_struct("NotCounted").field("error", error).finish_non_exhaustive()
            }
        }
    }
}

/// The source is that of the contained error, because the text contains the text of that error.
impl<T, E: std::error::Error> std::error::Error for OnceError<T, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lock(error) | Self::NotCounted { error, .. } => error.source(),
            Self::Body(error) => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Fault, Key, LossReason, Unknown};

    #[test]
    fn no_text_is_printed_twice_in_a_chain() {
        struct Opaque;
        let error = Error::unreachable(Unknown::new("a:1", Fault::Timeout, ""));
        let error: OnceError<_, std::io::Error> = OnceError::NotCounted { value: Opaque, error };
        let texts: Vec<String> = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source())
            .map(ToString::to_string)
            .collect();
        let first = "the work is done, but its success is not recorded: the backend of the locks cannot be reached";
        assert_eq!(texts, [first, "a:1: no answer in time"]);
        assert_eq!(format!("{error:#}"), texts.join(": "));
    }

    #[test]
    fn a_value_that_cannot_be_shown_is_left_out() {
        struct Opaque;
        let error = Error::lost(Key::new("k").unwrap(), LossReason::Expired);
        let error: OnceError<_, std::io::Error> = OnceError::NotCounted { value: Opaque, error };
        assert_eq!(
            format!("{error:?}"),
            r#"NotCounted { error: Lost { key: Key("k"), reason: Expired }, .. }"#
                .replace(r#"Key("k")"#, &format!("{:?}", Key::new("k").unwrap()))
        );
    }
}
