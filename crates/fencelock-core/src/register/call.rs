use super::memory::{Known, Life};
use super::operation::{Current, Decision, Operation, View};
use super::{CallStep, Expect, Memory, Reading, Record, StoreClock, Stored, Version, proof_is_due};
use crate::{Expiry, Fault, Key, Moment, RetryPlan, Unknown};
use std::time::Duration;

/// One call on a register, as a state machine without I/O: it reads, decides, and writes if nothing has changed since, until it has
/// an answer.
///
/// A driver carries out each [`CallStep`] and reports the answer. It may drop a call at any time, for example if a request is not
/// answered: the memory knows what may still be executed. A refusal is never an answer, because the write may be a copy of one that
/// was executed: the next read shows it by its nonce.
#[derive(Debug, Clone, Hash)]
pub struct Call<O: Operation> {
    key: Key,
    operation: O,
    /// The writes of this call, all of them refused; the last one may not be answered yet.
    writes: Vec<Written<O::Output>>,
    /// How the store has worded the last refusal.
    refusal: String,
}

/// What a step of a [`Call`] uses.
#[derive(Debug)]
pub struct Context<'a> {
    /// The name of the backend, for messages.
    pub backend: &'a str,
    /// Of the key.
    pub memory: &'a mut Memory,
    /// Of the store.
    pub clock: &'a mut StoreClock,
    /// When the store was last seen to refuse what it must refuse.
    pub proved: Option<Moment>,
    /// When the answer was received, or the call began.
    pub now: Moment,
    /// A random number.
    pub nonce: u64,
}

#[derive(Debug, Clone, Hash)]
struct Written<T> {
    expect: Expect,
    record: Record,
    sent: Moment,
    answer: T,
}

impl<O: Operation> Call<O> {
    /// So often may other clients be faster, each of which has changed the key.
    const ROUNDS: usize = 16;
    /// So often may a write be refused although nobody has changed the key, within half a second.
    const UNCHANGED: usize = 5;
    /// After the second refusal: the first one is settled by a read.
    const PAUSES: RetryPlan = RetryPlan { first: Duration::from_millis(50), longest: Duration::from_millis(500) };

    /// A call on this key.
    pub const fn new(key: Key, operation: O) -> Self {
        Self { key, operation, writes: Vec::new(), refusal: String::new() }
    }

    /// The key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The first step. If this client wrote the record last, it needs no read to replace it.
    pub fn start(&mut self, cx: &mut Context<'_>) -> CallStep<O::Output> {
        if let Some(Known { version, record, .. }) = cx.memory.known.clone().filter(|known| !known.has_lapsed(cx.now)) {
            let life = record.hold.as_ref().map_or(Life::Over, |hold| Life::For(hold.ttl.get()));
            let stored = Stored::Record(version, record);
            if let Decision::Write { record, answer } = self.decide(&stored, life, None, cx) {
                return self.write(stored.expect(), record, answer, cx);
            }
        }
        CallStep::Read { after: Duration::ZERO }
    }

    /// The answer to [`CallStep::Read`].
    pub fn on_read(&mut self, reading: &Reading, cx: &mut Context<'_>) -> CallStep<O::Output> {
        cx.clock.hear(reading.date, cx.now);
        let life = cx.memory.observe(reading, cx.clock, cx.now);
        if let Stored::Record(version, record) = &reading.stored
            && let Some(own) = self.writes.iter().position(|write| write.record.nonce == record.nonce)
        {
            return self.applied(own, version.clone(), cx);
        }
        match self.decide(&reading.stored, life, reading.modified, cx) {
            Decision::Write { record, answer } => {
                let expect = reading.stored.expect();
                match self.refused_too_often(&expect) {
                    Some((fault, why)) => CallStep::Done(Err(Unknown::new(cx.backend, fault, why))),
                    None => self.write(expect, record, answer, cx),
                }
            }
            Decision::Done(answer) => {
                if let Some(holder) = self.operation.holder()
                    && !cx.memory.may_arrive(holder, &reading.stored.expect())
                {
                    cx.memory.settle(holder);
                }
                CallStep::Done(answer)
            }
        }
    }

    /// [`CallStep::Write`] was executed, and the store told this time.
    pub fn on_written(&mut self, version: Version, date: Option<u64>, cx: &mut Context<'_>) -> CallStep<O::Output> {
        cx.clock.hear(date, cx.now);
        self.applied(self.writes.len().saturating_sub(1), version, cx)
    }

    /// [`CallStep::Write`] was refused, in these words of the store.
    pub fn on_refused(&mut self, why: String, random: u64) -> CallStep<O::Output> {
        self.refusal = why;
        let earlier = self.writes.len().checked_sub(2).and_then(|earlier| u32::try_from(earlier).ok());
        let pause = |earlier| Self::PAUSES.pause(earlier, Expiry::Never, random);
        CallStep::Read { after: earlier.map_or(Duration::ZERO, pause) }
    }

    /// Why this is not written once more.
    fn refused_too_often(&self, expect: &Expect) -> Option<(Fault, String)> {
        let (key, refusal) = (&self.key, &self.refusal);
        if self.writes.iter().rev().take_while(|write| write.expect == *expect).count() >= Self::UNCHANGED {
            let why = format!("it refuses to write {key}, although nobody has changed it meanwhile: {refusal}");
            return Some((Fault::Unsupported, why));
        }
        let why = || (Fault::Busy, format!("other clients change {key} too often: {refusal}"));
        (self.writes.len() >= Self::ROUNDS).then(why)
    }

    fn applied(&mut self, write: usize, version: Version, cx: &mut Context<'_>) -> CallStep<O::Output> {
        if write >= self.writes.len() {
            return CallStep::Read { after: Duration::ZERO };
        }
        let Written { record, sent, answer, .. } = self.writes.swap_remove(write);
        if let Some(holder) = self.operation.holder() {
            cx.memory.settle(holder);
        }
        cx.memory.write(Known { version, record, sent });
        CallStep::Done(Ok(answer))
    }

    fn write(
        &mut self,
        expect: Expect,
        record: Record,
        answer: O::Output,
        cx: &mut Context<'_>,
    ) -> CallStep<O::Output> {
        let claims = self.operation.holder().filter(|_| record.hold.is_some());
        // A grant counts from after the proof, so none of its writes may have been sent before.
        if self.writes.is_empty() && proof_is_due(cx.proved, claims.is_some(), cx.now) {
            return CallStep::Prove;
        }
        let record = Record { nonce: cx.nonce, ..record };
        cx.memory.known = None;
        if let Some(holder) = claims {
            cx.memory.send_claim(holder, &expect);
        }
        self.writes.push(Written { expect: expect.clone(), record: record.clone(), sent: cx.now, answer });
        CallStep::Write { expect, record }
    }

    fn decide(&mut self, stored: &Stored, life: Life, modified: Option<u64>, cx: &Context<'_>) -> Decision<O::Output> {
        let absent = Record::free(cx.clock.next_time(cx.now));
        let (record, current) = match (stored, life) {
            // Nothing is written over it.
            (Stored::Foreign(what), _) => {
                return Decision::Done(self.operation.on_foreign(&self.key, cx.backend, what));
            }
            // Its tokens, if it was deleted, were less than this.
            (Stored::Absent, _) => (&absent, Current::Free),
            (Stored::Record(_, record), life) => match (&record.hold, life) {
                (None, _) => (record, Current::Free),
                (Some(hold), Life::For(left)) => (record, Current::Held(hold, left)),
                (Some(hold), Life::Over) => (record, Current::Over(hold)),
            },
        };
        let (key, name, time) = (&self.key, cx.backend, cx.clock.time(cx.now));
        let mut claims = self.operation.holder().into_iter();
        let claim_may_arrive = claims.any(|holder| cx.memory.may_arrive(holder, &stored.expect()));
        self.operation.decide(&View { key, name, record, current, time, modified, claim_may_arrive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::{ClaimKey, EvictHold, InspectKey, ReleaseKey, RenewHold, Settings};
    use crate::{
        Acquire, Claim, Eviction, Expiry, Foreign, Holder, HolderId, HolderInfo, Holding, Intent, Liveness, Occupant,
        Owner, Release, Renew, Renewal, Ttl,
    };
    use std::time::Duration;

    const SECOND: u64 = 1_000_000;

    /// A client, its time, and the number of its writes.
    struct Client {
        memory: Memory,
        clock: StoreClock,
        now: Moment,
        nonce: u64,
    }

    impl Client {
        fn new() -> Self {
            let (memory, clock) = (Memory::default(), StoreClock::new(Settings::default()));
            Self { memory, clock, now: Moment::from_micros(0), nonce: 0 }
        }

        fn cx(&mut self) -> Context<'_> {
            self.nonce += 1;
            let Self { memory, clock, now, nonce } = self;
            Context { backend: "here", memory, clock, proved: Some(*now), now: *now, nonce: *nonce }
        }
    }

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn claim(holder: u8, intent: Intent) -> Call<ClaimKey> {
        let holder = Holder { id: HolderId::from_bytes([holder; 16]), owner: Owner::from_text("o") };
        Call::new(key(), ClaimKey(Claim::new(key(), holder, Ttl::default(), intent)))
    }

    fn renewal(holder: u8) -> Call<RenewHold> {
        Call::new(key(), RenewHold(Renewal::new(key(), HolderId::from_bytes([holder; 16]), Ttl::default())))
    }

    fn release(holder: u8) -> Call<ReleaseKey> {
        Call::new(key(), ReleaseKey(HolderId::from_bytes([holder; 16])))
    }

    fn read(stored: Stored, modified: u64, date: u64) -> Reading {
        Reading { stored, modified: Some(modified * SECOND), date: Some(date * SECOND) }
    }

    fn stored(version: &str, record: Record) -> Stored {
        Stored::Record(Version::new(version), record)
    }

    fn done<T>(step: CallStep<T>) -> T {
        match step {
            CallStep::Done(answer) => answer.unwrap(),
            _ => panic!("it is not done"),
        }
    }

    fn write<T>(step: CallStep<T>) -> (Expect, Record) {
        match step {
            CallStep::Write { expect, record } => (expect, record),
            _ => panic!("it writes nothing"),
        }
    }

    /// Takes the key at second 100 with the version `1`.
    fn take(client: &mut Client) -> Record {
        let mut call = claim(1, Intent::Try);
        assert!(matches!(call.start(&mut client.cx()), CallStep::Read { .. }));
        let (expect, record) = write(call.on_read(&read(Stored::Absent, 0, 100), &mut client.cx()));
        assert_eq!((expect, record.token), (None, 101 * SECOND + 1), "greater than all tokens up to now");
        let granted = done(call.on_written(Version::new("1"), Some(100 * SECOND), &mut client.cx()));
        assert!(matches!(granted, Acquire::Granted { tokens } if tokens.last().get() == record.token));
        record
    }

    #[test]
    fn what_this_client_wrote_last_is_replaced_without_a_read() {
        let mut client = Client::new();
        let record = take(&mut client);
        let mut call = renewal(1);
        let (expect, renewed) = write(call.start(&mut client.cx()));
        assert_eq!((expect, &renewed.hold), (Some(Version::new("1")), &record.hold));
        assert_eq!(done(call.on_written(Version::new("2"), None, &mut client.cx())), Renew::Renewed { waiters: 0 });
        let mut call = release(1);
        let (expect, freed) = write(call.start(&mut client.cx()));
        assert_eq!((expect, freed.hold), (Some(Version::new("2")), None));
        assert_eq!(done(call.on_written(Version::new("3"), None, &mut client.cx())), Release::Released);
        let (expect, taken) = write(claim(2, Intent::Try).start(&mut client.cx()));
        assert!(expect == Some(Version::new("3")) && taken.token > record.token);
    }

    #[test]
    fn a_lease_that_has_ended_is_read_first_and_not_taken_again() {
        let mut client = Client::new();
        let record = take(&mut client);
        client.now = client.now + Ttl::default().get();
        let mut call = renewal(1);
        assert!(matches!(call.start(&mut client.cx()), CallStep::Read { .. }));
        let mut early = call.clone();
        // The skew and the unit of the times are added.
        let (_, renewed) = write(early.on_read(&read(stored("1", record.clone()), 100, 132), &mut client.cx()));
        assert!(renewed.hold.is_some());
        let (_, freed) = write(call.on_read(&read(stored("1", record), 100, 133), &mut client.cx()));
        assert!(freed.hold.is_none(), "an earlier renewal in flight must not renew it either");
        assert_eq!(done(call.on_written(Version::new("2"), None, &mut client.cx())), Renew::Absent);
    }

    #[test]
    fn a_refused_write_is_recognized_also_if_it_was_not_the_last() {
        let mut client = Client::new();
        let mut call = claim(1, Intent::Try);
        let free = read(stored("1", Record::free(7)), 0, 0);
        let (_, first) = write(call.on_read(&free, &mut client.cx()));
        let _ = call.on_refused(String::new(), 0);
        let (_, second) = write(call.on_read(&free, &mut client.cx()));
        assert_ne!(first.nonce, second.nonce);
        let _ = call.on_refused(String::new(), 0);
        let granted = done(call.on_read(&read(stored("2", first.clone()), 0, 0), &mut client.cx()));
        assert!(matches!(granted, Acquire::Granted { tokens } if tokens.last().get() == first.token));
        assert_eq!(write(renewal(1).start(&mut client.cx())).0, Some(Version::new("2")));
    }

    #[test]
    fn a_call_that_is_always_too_late_ends() {
        let mut client = Client::new();
        let mut call = claim(1, Intent::Try);
        let refusal = loop {
            let free = Record { nonce: 1 << 40, ..Record::free(7) };
            match call.on_read(&read(stored(&client.nonce.to_string(), free), 0, 0), &mut client.cx()) {
                CallStep::Write { .. } => assert!(client.nonce < 100),
                CallStep::Done(answer) => break answer.unwrap_err(),
                _ => panic!("it has just read"),
            }
        };
        assert!(refusal.to_string().contains("too often"), "{refusal}");
    }

    #[test]
    fn a_refusal_for_no_reason_is_repeated_after_pauses_and_then_the_store_is_wrong() {
        let (mut client, mut pauses) = (Client::new(), Vec::new());
        let mut call = release(1);
        let held = read(stored("1", take(&mut client)), 0, 0);
        let mut step = call.start(&mut client.cx());
        let refusal = loop {
            step = match step {
                CallStep::Write { .. } => call.on_refused("412 TheStoreSaysNo".into(), 0),
                CallStep::Read { after } => {
                    pauses.push(after.as_millis());
                    call.on_read(&held, &mut client.cx())
                }
                CallStep::Prove => panic!("it is proved"),
                CallStep::Done(answer) => break answer.unwrap_err(),
            };
        };
        assert_eq!(pauses, [0, 50, 75, 112, 168]);
        let text = refusal.to_string();
        assert!(
            text.contains("nobody has changed it meanwhile: 412 TheStoreSaysNo") && refusal.is_permanent(),
            "{text}"
        );
    }

    #[test]
    fn no_write_goes_before_the_first_proof_and_no_claim_before_the_next() {
        let (mut client, free) = (Client::new(), read(Stored::Absent, 0, 100));
        let late = Client::new().now + Duration::from_secs(600);
        let at = |proved, claims, now| proof_is_due(proved, claims, now);
        assert!(at(None, false, late) && at(Some(client.now), true, late) && !at(Some(client.now), false, late));
        let mut call = claim(1, Intent::Try);
        let step = call.on_read(&free, &mut Context { proved: None, ..client.cx() });
        assert!(matches!(step, CallStep::Prove) && client.memory.is_idle(), "nothing was sent");
        assert_eq!(write(call.on_read(&free, &mut client.cx())).0, None);
    }

    #[test]
    fn what_is_not_understood_is_never_overwritten() {
        let mut client = Client::new();
        let what = Foreign::other("a photograph");
        let seen = read(Stored::Foreign(what.clone()), 0, u64::MAX / SECOND);
        let holder = Occupant::Foreign(what);
        let busy = done(claim(1, Intent::Try).on_read(&seen, &mut client.cx()));
        assert!(matches!(busy, Acquire::Busy(occupied) if occupied.expiry == Expiry::Never));
        let busy = done(claim(1, Intent::Poll).on_read(&seen, &mut client.cx()));
        assert!(matches!(busy, Acquire::Busy(_)));
        assert_eq!(done(renewal(1).on_read(&seen, &mut client.cx())), Renew::TakenBy(holder.clone().into()));
        assert_eq!(done(release(1).on_read(&seen, &mut client.cx())), Release::TakenBy(holder.clone().into()));
        let inspected = done(Call::new(key(), InspectKey).on_read(&seen, &mut client.cx()));
        assert_eq!(inspected.unwrap().first().occupant, holder);
        let seen_before = Holding::new(key(), HolderInfo::new(holder, Expiry::Never));
        let evicted = done(Call::new(key(), EvictHold(seen_before)).on_read(&seen, &mut client.cx()));
        assert!(matches!(evicted, Eviction::Refused(text) if text.contains("a photograph")));
    }

    #[test]
    fn a_hold_shows_when_it_was_written_if_the_store_tells_the_time() {
        let (mut holder, mut other) = (Client::new(), Client::new());
        let record = take(&mut holder);
        let look = |client: &mut Client, seen: &Reading| {
            let seen = done(Call::new(key(), InspectKey).on_read(seen, &mut client.cx()));
            seen.unwrap().first().alive
        };
        let ago = |secs| Some(Liveness::of_lease(Duration::from_secs(secs), Ttl::default().get()));
        assert_eq!(look(&mut other, &read(stored("1", record.clone()), 100, 107)), ago(7));
        let untold = Reading { stored: stored("1", record), modified: None, date: None };
        assert_eq!(look(&mut other, &untold), None);
        assert_eq!(look(&mut Client::new(), &untold), None);
    }

    #[test]
    fn without_a_clock_of_the_store_a_hold_is_over_after_it_was_observed_for_its_lease() {
        let (mut holder, mut other) = (Client::new(), Client::new());
        let record = take(&mut holder);
        let seen = Reading { stored: stored("1", record), modified: None, date: None };
        let look = |client: &mut Client| claim(2, Intent::Try).on_read(&seen, &mut client.cx());
        assert!(matches!(done(look(&mut other)), Acquire::Busy(_)));
        other.now = other.now + Ttl::default().get() + Duration::from_millis(301);
        assert!(matches!(done(look(&mut other)), Acquire::Busy(_)), "its clock may be fast");
        other.now = other.now + Duration::from_millis(1);
        assert_eq!(write(look(&mut other)).0, Some(Version::new("1")));
    }
}
