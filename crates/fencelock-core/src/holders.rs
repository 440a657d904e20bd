use crate::{Expiry, FencingToken, HolderId, Mode, Occupant};
use std::fmt;
use std::time::Duration;

/// The holders of a key: at least one.
///
/// An exclusive lock has one, a shared lock or a semaphore may have many. A backend may list some of many and count the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holders<H = Occupant> {
    first: H,
    /// Rarely used, so it is boxed to keep the answers and errors that contain holders small.
    others: Option<Box<Others<H>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Others<H> {
    named: Vec<H>,
    unnamed: u32,
}

impl Holders {
    /// An answer to a claim lists this many holders, and counts the others.
    pub const LISTED: usize = 16;

    /// The first [`Holders::LISTED`] of them, and the number of the others; `None` if there are none.
    pub fn listed(all: impl IntoIterator<Item = Occupant>) -> Option<Self> {
        let mut all = all.into_iter();
        let first = Self::one(all.next()?);
        let named = all.by_ref().take(Self::LISTED - 1).fold(first, Self::and);
        Some(named.and_unnamed(u32::try_from(all.count()).unwrap_or(u32::MAX)))
    }
}

impl<H> Holders<H> {
    /// One holder.
    pub const fn one(holder: H) -> Self {
        Self { first: holder, others: None }
    }

    /// The same with one more holder.
    #[must_use]
    pub fn and(mut self, holder: H) -> Self {
        self.others_mut().named.push(holder);
        self
    }

    /// The same with `more` holders that are only counted.
    #[must_use]
    pub fn and_unnamed(mut self, more: u32) -> Self {
        if more > 0 {
            let others = self.others_mut();
            others.unnamed = others.unnamed.saturating_add(more);
        }
        self
    }

    fn others_mut(&mut self) -> &mut Others<H> {
        self.others.get_or_insert_with(|| Box::new(Others { named: Vec::new(), unnamed: 0 }))
    }

    /// The first listed holder; of an exclusive lock, the only one.
    pub const fn first(&self) -> &H {
        &self.first
    }

    /// [`Holders::first`], by value.
    pub fn into_first(self) -> H {
        self.first
    }

    /// The listed holders.
    pub fn iter(&self) -> impl Iterator<Item = &H> {
        std::iter::once(&self.first).chain(self.others.iter().flat_map(|others| &others.named))
    }

    /// The number of holders, listed or not.
    pub fn count(&self) -> u32 {
        u32::try_from(self.iter().count()).unwrap_or(u32::MAX).saturating_add(self.unnamed())
    }

    fn unnamed(&self) -> u32 {
        self.others.as_ref().map_or(0, |others| others.unnamed)
    }

    /// The same holders, each mapped by a function.
    pub fn map<T>(self, describe: impl Fn(H) -> T) -> Holders<T> {
        let Self { first, others } = self;
        let others = others.map(|others| {
            let Others { named, unnamed } = *others;
            Box::new(Others { named: named.into_iter().map(&describe).collect(), unnamed })
        });
        Holders { first: describe(first), others }
    }
}

impl<H> From<H> for Holders<H> {
    fn from(holder: H) -> Self {
        Self::one(holder)
    }
}

/// `web-1:42 (nightly)`, `web-1:42, web-2:7 and 3 more`.
impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        for holder in self.iter().skip(1) {
            write!(f, ", {holder}")?;
        }
        match self.unnamed() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A holder of a key, and the known facts about its hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The holder.
    pub occupant: Occupant,
    /// The mode.
    pub mode: Mode,
    /// When the hold expires.
    pub expiry: Expiry,
    /// The greatest fencing token of the hold, and usually the only one; unknown for foreign holds.
    pub fence: Option<FencingToken>,
    /// The duration of the hold, if known.
    pub held_for: Option<Duration>,
    /// What shows that the holder is alive, if anything does.
    pub alive: Option<Liveness>,
}

/// What shows that a holder is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Liveness {
    /// The hold ends with the process of its holder. So that process lives, or one that was forked from it.
    Process,
    /// The latest renewal of its lease, or the grant if there was none.
    Renewed {
        /// How long ago it was.
        ago: Duration,
        /// How often the holder renews, if known.
        every: Option<Duration>,
    },
}

impl Liveness {
    /// Whether a renewal is late by more than a fifth of its interval: the holder is paused, cannot reach the backend, or is one that
    /// does not renew by itself.
    pub fn is_overdue(self) -> bool {
        matches!(self, Self::Renewed { ago, every: Some(every) } if ago > every.saturating_add(every / 5))
    }
}

impl HolderInfo {
    /// An exclusive hold with unknown fence and duration.
    pub const fn new(occupant: Occupant, expiry: Expiry) -> Self {
        Self { occupant, mode: Mode::Exclusive, expiry, fence: None, held_for: None, alive: None }
    }

    /// The same in another mode.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The same with its greatest fencing token, if known.
    #[must_use]
    pub const fn with_fence(mut self, fence: Option<FencingToken>) -> Self {
        self.fence = fence;
        self
    }

    /// The same with its duration, if known.
    #[must_use]
    pub const fn with_held_for(mut self, held_for: Option<Duration>) -> Self {
        self.held_for = held_for;
        self
    }

    /// The same with what shows that the holder is alive.
    #[must_use]
    pub const fn with_alive(mut self, alive: Option<Liveness>) -> Self {
        self.alive = alive;
        self
    }

    /// The holder id, if it is a fencelock lock.
    pub fn holder_id(&self) -> Option<HolderId> {
        self.occupant.holder_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Foreign, Holder, Holding, Key, Occupied, Owner};

    fn occupant(n: u8) -> Occupant {
        let (id, owner) = (HolderId::from_bytes([n; 16]), Owner::new("web", n.into(), None).unwrap());
        Occupant::Holder(Holder { id, owner })
    }

    #[test]
    fn holders_are_named_and_counted() {
        let one = Holders::one(occupant(1));
        assert_eq!((one.to_string(), one.count()), ("web:1".to_owned(), 1));
        let many = one.and(occupant(2)).and_unnamed(3);
        assert_eq!((many.to_string(), many.count()), ("web:1, web:2 and 3 more".to_owned(), 5));
        assert_eq!(many.iter().collect::<Vec<_>>(), [&occupant(1), &occupant(2)]);
        assert_eq!(many.clone().and_unnamed(u32::MAX).count(), u32::MAX);
        assert_eq!(Holders::one(1).and_unnamed(0), Holders::one(1));
        assert_eq!(Holders::one(1).and(2).and_unnamed(3).map(|n| n * 10), Holders::one(10).and(20).and_unnamed(3));
    }

    #[test]
    fn a_key_is_occupied_until_its_first_hold_ends_and_since_its_oldest_began() {
        let secs = Duration::from_secs;
        let of = |n, left, age| HolderInfo::new(occupant(n), Expiry::In(secs(left))).with_held_for(Some(secs(age)));
        let holding = Holding::new(Key::new("k").unwrap(), of(1, 9, 2)).with_holder(of(2, 5, 7));
        assert!(holding.hold_of(&occupant(2)).is_some() && holding.hold_of(&occupant(3)).is_none());
        let occupied = Occupied::from(holding);
        assert_eq!((occupied.expiry, occupied.held_for), (Expiry::In(secs(5)), Some(secs(7))));
        assert_eq!(occupied.holders, Holders::one(occupant(1)).and(occupant(2)));
    }

    #[test]
    fn a_renewal_is_overdue_when_it_is_late_by_a_fifth_of_its_interval() {
        let at = |ago| Liveness::of_lease(Duration::from_secs(ago), Duration::from_secs(30));
        assert_eq!(at(7), Liveness::Renewed { ago: Duration::from_secs(7), every: Some(Duration::from_secs(10)) });
        assert_eq!([0, 10, 12, 13].map(|ago| at(ago).is_overdue()), [false, false, false, true]);
        assert!(!Liveness::Renewed { ago: Duration::MAX, every: None }.is_overdue() && !Liveness::Process.is_overdue());
    }

    #[test]
    fn a_hold_without_expiry_outlasts_all_others() {
        let endless = HolderInfo::new(Occupant::Foreign(Foreign::other("a lock")), Expiry::Never);
        let leased = HolderInfo::new(occupant(1), Expiry::In(Duration::from_secs(1)));
        let holding = Holding::new(Key::new("k").unwrap(), endless).with_holder(leased);
        assert_eq!(Occupied::from(holding).expiry, Expiry::In(Duration::from_secs(1)));
    }
}
