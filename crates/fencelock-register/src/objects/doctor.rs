//! A trial of what locks need of a store: who wins when several clients write at once, and which times it tells.

use super::connector::{Answered, unknown};
use super::{Objects, update};
use crate::WriteReply;
use fencelock_core::register::{Expect, Version};
use fencelock_core::{BootClock, Clock, ClockOffset, Fault, Finding, Level, Span, Unknown};
use futures_util::future::join_all;
use object_store::{ObjectStoreExt, PutMode};
use std::time::Duration;

/// So many clients write at once, so many times. Some stores let those that lose wait for seconds.
const CLIENTS: usize = 4;
const ROUNDS: usize = 3;
/// Most stores refuse requests that are off by 15 minutes.
const CLOCK_WARNS: Duration = Duration::from_secs(60);
/// A renewal that takes longer than a fifth of the TTL is repeated.
const SLOW: Duration = Duration::from_millis(600);

/// What the trial has seen.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
struct Seen {
    /// What no lock survives.
    broken: Option<String>,
    /// Races with one winner.
    won: usize,
    /// By how much the times of an object and of its answer differ at most; `None` if they are not told.
    apart: Option<u64>,
    clock: Option<ClockOffset>,
    slowest: Duration,
    has_versions: bool,
    expires: bool,
    is_replicated: bool,
    /// Names that differ in case are one object.
    folds_case: bool,
}

impl Objects {
    /// Whatever it writes is removed, or the findings say why not.
    pub(super) async fn try_conditions(&self) -> Vec<Finding> {
        let Ok(random) = getrandom::u64() else { return Vec::new() };
        let objects: Vec<_> = (0..ROUNDS).map(|round| format!(".fencelock-doctor-{random:016x}-{round}")).collect();
        let mut seen = Seen::default();
        let mut cause = None;
        for object in &objects {
            // Another finding says what does not work at all.
            if let Err(unknown) = self.round(object, &mut seen).await {
                cause = Some(unknown);
                break;
            }
        }
        let mut findings = match cause {
            None => seen.findings(self.location.skew),
            Some(cause) => vec![Finding::failure("conditions", cause.to_string(), "correct what it names")],
        };
        let removed = join_all(objects.iter().map(|object| self.remove(object))).await;
        if let Some(cause) = removed.into_iter().find_map(Result::err) {
            let text = format!("the objects .fencelock-doctor-* of this trial may stay: {cause}");
            findings.push(Finding::note("trial", text, "delete them; locks need no right to delete"));
        }
        findings
    }

    pub(super) async fn remove(&self, object: &str) -> Result<(), Unknown> {
        let path = self.path(object);
        let removed = async {
            match self.caught("deleting", self.store.delete(&path)).await? {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(unknown(&self.name, "deleting", &error, &Answered::unseen())),
            }
        };
        self.within(1, removed).await
    }

    async fn round(&self, object: &str, seen: &mut Seen) -> Result<(), Unknown> {
        let mut current: Expect = None;
        for what in ["created", "replaced"] {
            let Some((version, body)) = self.race(object, &current, what, seen).await? else { return Ok(()) };
            let before = BootClock.wall_micros();
            let found = self.within(1, self.get(object)).await?;
            if found.bytes != Some((version.clone(), body)) {
                seen.broken = Some("a read showed something else than the last write".to_owned());
            }
            let other = self.within(1, self.get(&object.to_ascii_uppercase())).await?;
            seen.folds_case |= other.bytes.is_some();
            if let Some((date, modified)) = found.date.zip(found.modified) {
                seen.apart = seen.apart.max(Some(date.abs_diff(modified)));
                // It is cut off.
                seen.clock = Some(ClockOffset::measured(before, date + 500_000, BootClock.wall_micros()));
            }
            current = Some(version);
        }
        Ok(())
    }

    /// The version and the content of the only winner; `None` if there was another number, or if the store did not answer all.
    async fn race(
        &self,
        object: &str,
        expect: &Expect,
        what: &'static str,
        seen: &mut Seen,
    ) -> Result<Option<(Version, Vec<u8>)>, Unknown> {
        let write = |client: usize| {
            // Equal contents would have equal versions on some stores, and two winners.
            let body = format!("fencelock: {object} was {what} by client {client} of a trial\n").into_bytes();
            let mode = expect.as_ref().map_or(PutMode::Create, update);
            async move {
                let begun = BootClock.now();
                let written = self.within(1, self.send(object, mode, body.clone())).await;
                (written, body, BootClock.now().since(begun))
            }
        };
        let (mut winner, mut winners, mut unanswered) = (None, 0, None);
        for (written, body, took) in join_all((0..CLIENTS).map(write)).await {
            seen.slowest = seen.slowest.max(took);
            match written {
                Ok((WriteReply::Written { version, .. }, told)) => {
                    (winner, winners) = (Some((version, body)), winners + 1);
                    seen.has_versions |= told.has_versions;
                    seen.expires |= told.expires;
                    seen.is_replicated |= told.is_replicated;
                }
                Ok((WriteReply::Refused { .. }, _)) => {}
                Err(cause) => unanswered = Some(cause),
            }
        }
        if let Some(cause) = unanswered {
            let is_busy = cause.nodes().iter().any(|node| matches!(node.fault, Fault::Busy | Fault::Timeout));
            // It has perhaps won.
            return if is_busy { Ok(None) } else { Err(cause) };
        }
        if winners != 1 {
            seen.broken = Some(format!("{winners} of {CLIENTS} clients {what} the same object at once"));
            return Ok(None);
        }
        seen.won += 1;
        Ok(winner)
    }
}

impl Seen {
    fn findings(&self, skew: Duration) -> Vec<Finding> {
        let conditions = self.conditions();
        if conditions.level > Level::Fine {
            return vec![conditions];
        }
        let mut findings = vec![conditions, self.times(skew)];
        let off = self.clock.map_or(Duration::ZERO, ClockOffset::off_at_least);
        if off > CLOCK_WARNS {
            let text =
                format!("the clock of this machine is {} off, and stores refuse requests at 15 minutes", Span(off));
            findings.push(Finding::warning("clock", text, "set the clock, for example with NTP"));
        }
        if self.slowest > SLOW {
            let text = format!("a write took {} while {CLIENTS} clients wrote at once", Span(self.slowest));
            findings.push(Finding::note("latency", text, "use a TTL of at least five times as long"));
        }
        let versions = "the bucket keeps old versions: a lock that is held with a TTL of 30 s adds 9,000 of them a day";
        let names =
            "the store takes upper and lower case for the same: of two keys that differ in it, one is always busy";
        let lifecycle =
            "a lifecycle rule deletes these objects: one of less than two days ends locks under their holders";
        let replicas = "the bucket is replicated: a client that uses the replica sees other locks";
        let told = [
            (self.has_versions, "versions", versions, "use a bucket without, or let them expire"),
            (self.folds_case, "names", names, "use another store, or keys in lower case"),
            (self.expires, "lifecycle", lifecycle, "leave the prefix out of the rule"),
            (self.is_replicated, "replicas", replicas, "name the same bucket in all clients"),
        ];
        let told = told.into_iter().filter(|(is_told, ..)| *is_told);
        findings.extend(told.map(|(_, subject, text, advice)| Finding::warning(subject, text, advice)));
        findings
    }

    fn conditions(&self) -> Finding {
        if let Some(broken) = &self.broken {
            let advice = "use another store, or the bucket itself instead of a replica";
            return Finding::failure("conditions", format!("{broken}: this store cannot lock"), advice);
        }
        if self.won == 0 {
            let text = "the store was too busy to answer clients that wrote at once";
            return Finding::warning("conditions", text, "try again");
        }
        let text = format!("one of {CLIENTS} clients won each time when they wrote at once, and was read back");
        Finding::fine("conditions", text)
    }

    fn times(&self, skew: Duration) -> Finding {
        let Some(apart) = self.apart.map(Duration::from_micros) else {
            let text =
                "the store tells no times, or they are not used: a new process waits a whole TTL for a dead holder";
            return Finding::note("times", text, "");
        };
        // Both are cut off, and the answer comes after the write.
        if apart > skew + Duration::from_secs(2) {
            let text = format!("the times of an object and of the answer are {} apart", Span(apart));
            return Finding::warning("times", text, "set a greater skew= in all clients, or clock=off");
        }
        let text = format!("the clocks of the store are less than skew={} apart, as far as seen", Span(skew));
        Finding::fine("times", text)
    }
}
