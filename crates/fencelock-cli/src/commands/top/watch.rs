use fencelock::contract::RenewalPlan;
use fencelock::{HolderId, HolderInfo, Holding, Key, Liveness};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// What one look after another shows of holds: their renewals, where the backend does not tell them, and how many were granted.
#[derive(Debug, Default)]
pub(super) struct Watch {
    holds: HashMap<(Key, HolderId), Seen>,
    listed: Option<Instant>,
    /// Since the list before the last one.
    grants_per_second: Option<f64>,
}

/// A hold with a lease: each renewal moves its end.
#[derive(Debug, Clone)]
struct Seen {
    /// The last look, and the remaining time that it showed.
    at: Instant,
    left: Duration,
    /// The greatest remaining time so far: the TTL, as soon as a look has closely followed a renewal.
    longest: Duration,
    /// The latest renewal.
    renewed: Option<Instant>,
    /// The shortest time between two renewals.
    every: Option<Duration>,
}

/// Servers count in milliseconds.
const RESOLUTION: Duration = Duration::from_millis(5);

impl Watch {
    /// All holds, in place of those before, and what shows that their holders are alive. Each was read after it was `asked` for, and
    /// before `now`.
    pub(super) fn on_list(&mut self, mut held: Vec<Holding>, (asked, now): (Instant, Instant)) -> Vec<Holding> {
        let before = std::mem::take(&mut self.holds);
        for held in &held {
            self.look(held, (asked, now), &before);
        }
        let new = self.holds.keys().filter(|hold| !before.contains_key(hold)).count();
        let since = self.listed.replace(now).map(|listed| now.saturating_duration_since(listed).as_secs_f64());
        let rate = |since| f64::from(u32::try_from(new).unwrap_or(u32::MAX)) / since;
        self.grants_per_second = since.filter(|since| *since > 0.0).map(rate);
        for held in &mut held {
            self.tell(held);
        }
        held
    }

    /// One of them again. What was granted meanwhile is for the next list.
    pub(super) fn on_inspection(&mut self, held: &mut Holding, times: (Instant, Instant)) {
        let known = |hold: &HolderInfo| Some((held.key.clone(), hold.holder_id()?));
        let known = held.holders.iter().filter_map(known);
        let before: HashMap<_, _> = known.filter_map(|hold| self.holds.remove_entry(&hold)).collect();
        self.look(held, times, &before);
        self.tell(held);
        let new = |hold: &(Key, HolderId)| hold.0 == held.key && !before.contains_key(hold);
        self.holds.retain(|hold, _| !new(hold));
    }

    /// `None` before the second list.
    pub(super) const fn grants_per_second(&self) -> Option<f64> {
        self.grants_per_second
    }

    fn look(&mut self, held: &Holding, times: (Instant, Instant), before: &HashMap<(Key, HolderId), Seen>) {
        for hold in held.holders.iter() {
            let (Some(id), Some(left)) = (hold.holder_id(), hold.expiry.span()) else { continue };
            let name = (held.key.clone(), id);
            let seen = Seen::next(before.get(&name), times, left);
            self.holds.insert(name, seen);
        }
    }

    /// Adds what was seen to what the backend tells.
    fn tell(&self, held: &mut Holding) {
        let key = &held.key;
        held.holders = held.holders.clone().map(|hold| {
            let seen = || self.holds.get(&(key.clone(), hold.holder_id()?))?.liveness();
            let alive = hold.alive.or_else(seen);
            hold.with_alive(alive)
        });
    }
}

impl Seen {
    /// After a look that was `asked` for and complete at these times.
    fn next(before: Option<&Self>, (asked, now): (Instant, Instant), left: Duration) -> Self {
        let Some(before) = before else { return Self { at: now, left, longest: left, renewed: None, every: None } };
        let same = Self { at: now, left, longest: before.longest.max(left), ..before.clone() };
        // The lease was to end at this time at the latest. If it now ends later, it was renewed.
        let end = before.at + before.left;
        if asked + left <= end + RESOLUTION {
            return same;
        }
        let moved = (now + left).saturating_duration_since(end);
        let every = before.every.map_or(moved, |every| every.min(moved));
        // Not before the last look, which did not show it.
        let ago = same.longest.saturating_sub(left).min(now.saturating_duration_since(before.at));
        Self { renewed: now.checked_sub(ago), every: Some(every), ..same }
    }

    fn liveness(&self) -> Option<Liveness> {
        let ago = self.at.saturating_duration_since(self.renewed?);
        // A renewal may be early, together with others, so one interval alone may be too short.
        let every = self.every.map(|every| every.max(RenewalPlan::interval(self.longest)));
        Some(Liveness::Renewed { ago, every })
    }
}
