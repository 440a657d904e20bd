use crate::error::Error;
use fencelock_core::{Key, LossReason};
use std::fmt;

/// Why [`Lock::run`](crate::Lock::run) returned no reliable value: because of the lock, the body, or both.
///
/// Exhaustive, because there are exactly three cases. `{}` shows the error of the lock or of the body;
/// `{:#}` uses the alternate form of that error.
///
/// It is not an [`Error`], so `?` does not convert one into the other and lose the result of the body:
///
/// ```compile_fail,E0277
/// # async fn work() -> std::io::Result<u32> { Ok(7) }
/// async fn report(client: fencelock::Client) -> Result<u32, fencelock::Error> {
///     Ok(client.lock("report").run(|_held| work()).await?)
/// }
/// ```
///
/// `?` converts it into any boxed error:
///
/// ```
/// # async fn work() -> std::io::Result<u32> { Ok(7) }
/// async fn report(client: fencelock::Client) -> Result<u32, Box<dyn std::error::Error>> {
///     Ok(client.lock("report").run(|_held| work()).await?)
/// }
/// ```
///
/// A call that ignores the result does not compile if unused results are denied:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # async fn work() -> std::io::Result<u32> { Ok(7) }
/// async fn report(client: fencelock::Client) {
///     client.lock("report").run(|_held| work()).await;
/// }
/// ```
#[must_use = "it shows whether the work was done, and whether it was done under the lock"]
#[derive(Clone, PartialEq, Eq)]
pub enum RunError<T, E> {
    /// The body did not complete: the lock was not acquired and the body not called, or the lock was lost
    /// ([`Error::Lost`]) and the body dropped.
    Lock(Error),
    /// The body returned this error, whatever happened to the lock.
    Body(E),
    /// The body returned this value, but the lock was lost before it was released: another client may have held it
    /// in the meantime. Check what the body wrote (the resource rejects writes with an old fencing token), or undo it.
    LostAfter {
        /// The value of the body.
        value: T,
        /// The key of the lock.
        key: Key,
        /// The reason of the loss.
        reason: LossReason,
    },
}

impl<T, E> RunError<T, E> {
    /// Whether another client held the key until the maximum wait was over. The body was not called.
    pub const fn is_busy(&self) -> bool {
        matches!(self, Self::Lock(Error::Busy { .. }))
    }

    /// Whether the lock was lost, during or after the body.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lock(Error::Lost { .. }) | Self::LostAfter { .. })
    }

    /// The error of the body, if it returned one.
    pub const fn body(&self) -> Option<&E> {
        match self {
            Self::Body(error) => Some(error),
            Self::Lock(_) | Self::LostAfter { .. } => None,
        }
    }

    /// Converts into the error type of the body, for callers that treat all cases the same way:
    /// `.run(body).await.map_err(RunError::merge)?`. The type must accept any error, like `Box<dyn Error + Send + Sync>`.
    ///
    /// A value that was returned after the loss of the lock is dropped, and the result is [`Error::Lost`].
    pub fn merge(self) -> E
    where
        E: From<Error>,
    {
        match self {
            Self::Lock(error) => error.into(),
            Self::Body(error) => error,
            Self::LostAfter { key, reason, .. } => Error::lost(key, reason).into(),
        }
    }
}

/// An error of work under a lock: that of the lock, of the body, or one after the body has returned a value. `Debug` is what a `main` prints that
/// returns it, and omits the value, which need not implement it. The text contains that of the wrapped error, so the source is the source of that.
macro_rules! work_error {
    ($type:ident, $after:ident { $($field:ident),+ }, |$f:ident| $text:expr, $source:expr) => {
        impl<T, E> From<Error> for $type<T, E> {
            fn from(error: Error) -> Self {
                Self::Lock(error)
            }
        }

        impl<T, E: fmt::Display> fmt::Display for $type<T, E> {
            fn fmt(&self, $f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Lock(error) => error.fmt($f),
                    Self::Body(error) => error.fmt($f),
                    Self::$after { $($field,)+ .. } => $text,
                }
            }
        }

        impl<T, E: fmt::Debug> fmt::Debug for $type<T, E> {
            fn fmt(&self, $f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Lock(error) => error.fmt($f),
                    Self::Body(error) => error.fmt($f),
                    // An error that it contains is shown by its own `Debug`.
                    Self::$after { $($field,)+ .. } => $text,
                }
            }
        }

        impl<T, E: std::error::Error> std::error::Error for $type<T, E> {
            #[allow(unused_variables, reason = "not every one has a source")]
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    Self::Lock(error) => error.source(),
                    Self::Body(error) => error.source(),
                    Self::$after { $($field,)+ .. } => $source,
                }
            }
        }
    };
}
pub(crate) use work_error;

work_error! {
    RunError, LostAfter { key, reason },
    |f| write!(f, "the work is done, but the lock on {key} was lost before its end: {reason}"), None
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Fault, Unknown};
    use std::error::Error as _;
    use std::io;

    type Run = RunError<u32, io::Error>;

    fn lost_after() -> Run {
        RunError::LostAfter { value: 7, key: Key::new("k").unwrap(), reason: LossReason::Expired }
    }

    #[test]
    fn no_text_is_printed_twice_in_a_chain() {
        let away = Error::unreachable(Unknown::new("a:1", Fault::Timeout, ""));
        let body = io::Error::other(Error::unreachable(Unknown::new("b:2", Fault::Timeout, "")));
        for (error, chain) in [
            (Run::from(away), vec!["the backend of the locks cannot be reached", "a:1: no answer in time"]),
            (Run::Body(body), vec!["the backend of the locks cannot be reached", "b:2: no answer in time"]),
            (
                lost_after(),
                vec![
                    "the work is done, but the lock on k was lost before its end: its lease ran out before it could be renewed",
                ],
            ),
        ] {
            let texts: Vec<String> = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                std::error::Error::source(*error)
            })
            .map(ToString::to_string)
            .collect();
            assert_eq!(texts, chain);
        }
    }

    #[test]
    fn merging_keeps_the_error_of_the_body_and_reports_a_loss() {
        type Boxed = Box<dyn std::error::Error + Send + Sync>;
        let body: Boxed = RunError::<u32, Boxed>::Body("no paper".into()).merge();
        assert_eq!(body.to_string(), "no paper");
        let lost = RunError::LostAfter { value: 7, key: Key::new("k").unwrap(), reason: LossReason::Deleted };
        let lost: Boxed = RunError::<u32, Boxed>::merge(lost);
        assert!(lost.downcast_ref::<Error>().is_some_and(Error::is_lost), "{lost}");
    }

    #[test]
    fn a_loss_is_one_whenever_it_was_noticed() {
        let during = Run::from(Error::lost(Key::new("k").unwrap(), LossReason::Expired));
        assert!(during.is_lost() && lost_after().is_lost() && !during.is_busy());
        let body = Run::Body(io::Error::other("no paper"));
        assert!(!body.is_lost() && body.body().is_some() && body.source().is_none());
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        struct Opaque;
        let error = RunError::<_, io::Error>::LostAfter {
            value: Opaque,
            key: Key::new("k").unwrap(),
            reason: LossReason::Expired,
        };
        assert_eq!(format!("{error:?}"), lost_after().to_string());
    }
}
