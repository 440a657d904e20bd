use crate::{Invalid, Span};
use std::fmt::{self, Debug};
use std::ops::Add;
use std::time::Duration;

/// A point on the clock of one machine, in microseconds since some fixed start.
///
/// It is not [`std::time::Instant`], which on Linux does not advance while the machine is suspended; a server's TTL does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other moment: the end of a lease that never ends by itself.
    pub const NEVER: Self = Self(u64::MAX);

    /// `micros` since the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later. Beyond [`Moment::NEVER`] there is only "never".
    pub const fn since(self, earlier: Self) -> Duration {
        if self.0 == u64::MAX { Duration::MAX } else { Duration::from_micros(self.0.saturating_sub(earlier.0)) }
    }
}

/// In whole microseconds, or as many as fit.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }
}

impl Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER { f.write_str("never") } else { write!(f, "t={}us", self.0) }
    }
}

/// Where moments come from. Production has one implementation, which counts suspended time; tests drive theirs.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Never goes back.
    fn now(&self) -> Moment;
    /// The wall clock in microseconds since 1970, for fencing tokens. It may jump, so no guarantee may depend on it.
    fn wall_micros(&self) -> u64;
}

/// How long a lease outlives a holder that has stopped renewing it: 10 ms to 24 h, whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// A shorter lease may end before a reply arrives from a server in the same network.
    pub const MIN: Duration = Duration::from_millis(10);
    /// A held lease is renewed as long as its holder lives, so a longer TTL only delays other clients after a crash.
    pub const MAX: Duration = Duration::from_secs(86400);

    /// # Errors
    /// [`Invalid`] outside [`Ttl::MIN`] to [`Ttl::MAX`]; fractions of a millisecond are cut off.
    pub fn new(span: Duration) -> Result<Self, Invalid> {
        if span < Self::MIN || span > Self::MAX {
            return Err(Invalid::new(format!("a TTL lies between 10 ms and 24 h; {} does not", Span(span).exact())));
        }
        Ok(Self(Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))))
    }

    /// The span.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Checks that it is no longer than a backend allows: [`crate::Capabilities::longest_ttl`].
    ///
    /// # Errors
    /// [`Invalid`] with both.
    pub fn within(self, longest: Option<Duration>) -> Result<(), Invalid> {
        match longest {
            Some(longest) if self.0 > longest => Err(Invalid::new(format!(
                "a TTL of {} is longer than the {} that this backend allows: ask for less, or change max_ttl= in the URL of \
                 every client and run `fencelock init`",
                Span(self.0),
                Span(longest)
            ))),
            _ => Ok(()),
        }
    }

    /// The span in milliseconds, as servers count.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for Ttl {
    /// 30 s, as Redisson chose: long enough for a garbage collection, short enough to wait for after a crash.
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}

impl Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

/// By how much a holder ends its lease early, because its clock and the server's may run at different rates.
///
/// The rule is that of the Redlock description in the Redis documentation: a hundredth of the TTL plus 2 ms. Quartz
/// clocks diverge by less than 0.02 %, so the hundredth leaves room for slewing; the 2 ms cover Redis's own granularity.
///
/// Exhaustive: the rule has these two terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drift {
    /// Parts per million of the TTL.
    pub ppm: u32,
    /// Added to the relative part.
    pub fixed: Duration,
}

impl Drift {
    /// The part of `ttl` that the holder may not use.
    pub fn of(self, ttl: Duration) -> Duration {
        let micros = ttl.as_micros().saturating_mul(u128::from(self.ppm)) / 1_000_000;
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).saturating_add(self.fixed)
    }

    /// Checks that `ttl` is longer than the drift.
    ///
    /// # Errors
    /// [`Invalid`] if the drift is at least the whole TTL; such a lease would be lost before it begins.
    pub fn check(self, ttl: Ttl) -> Result<(), Invalid> {
        let drift = self.of(ttl.get());
        if drift >= ttl.get() {
            return Err(Invalid::new(format!(
                "a TTL of {} is not longer than the clock drift of {}",
                Span(ttl.get()),
                Span(drift)
            )));
        }
        Ok(())
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self { ppm: 10_000, fixed: Duration::from_millis(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_of_0_or_1_ms_or_400_days_is_refused_by_value() {
        for span in [Duration::ZERO, Duration::from_millis(1), Duration::from_hours(24 * 400), Duration::MAX] {
            let error = Ttl::new(span).unwrap_err().to_string();
            assert!(error.contains(&Span(span).exact()), "{error}");
        }
    }

    #[test]
    fn a_ttl_beyond_what_a_backend_allows_is_refused_with_both() {
        let ttl = Ttl::new(Duration::from_secs(30)).unwrap();
        assert!(ttl.within(None).is_ok() && ttl.within(Some(Duration::from_secs(30))).is_ok());
        let error = ttl.within(Some(Duration::from_secs(20))).unwrap_err().to_string();
        assert!(error.contains("30 s") && error.contains("20 s") && error.contains("max_ttl="), "{error}");
    }

    #[test]
    fn a_ttl_is_cut_to_whole_milliseconds() {
        assert_eq!(Ttl::new(Duration::from_micros(10_900)).unwrap().as_millis(), 10);
    }

    #[test]
    fn drift_is_one_percent_and_two_milliseconds() {
        assert_eq!(Drift::default().of(Duration::from_secs(30)), Duration::from_millis(302));
        assert_eq!(Drift::default().of(Duration::ZERO), Duration::from_millis(2));
    }

    #[test]
    fn drift_of_absurd_spans_does_not_wrap() {
        assert!(Drift { ppm: u32::MAX, fixed: Duration::MAX }.of(Duration::MAX) >= Duration::from_secs(86400));
    }

    #[test]
    fn time_before_its_start_is_zero_and_the_last_moment_is_never() {
        let (early, late) = (Moment::from_micros(5), Moment::from_micros(9));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_micros(4));
        assert_eq!(late + Duration::MAX, Moment::NEVER);
    }
}
