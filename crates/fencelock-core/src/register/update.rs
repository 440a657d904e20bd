use super::memory::{LastWrite, Life};
use super::view::{Current, Decision, View};
use super::{Expect, Reading, Record, Remembered, StoreClock, Stored, Version, proof_is_due};
use crate::{Expiry, Fault, HolderId, Key, Moment, RetryPlan, Unknown};
use std::time::Duration;

/// What a request has written so far. It reads, decides, and writes if nothing has changed since, until it has an answer.
///
/// Whoever executes its steps may stop at any time, for example if the store does not answer: the memory knows what may still be
/// executed. A refusal is never an answer, because the write may be a copy of one that was executed: the next read shows it by its
/// nonce.
#[derive(Debug, Clone, Hash)]
pub struct Update<T> {
    holder: Option<HolderId>,
    /// Its writes, all of them refused; the last one may not be answered yet.
    writes: Vec<Written<T>>,
    /// How the store has worded the last refusal.
    refusal: String,
}

/// What a decision uses.
#[derive(Debug)]
pub struct UpdateEnv<'a> {
    /// The key.
    pub key: &'a Key,
    /// The name of the backend, for messages.
    pub backend: &'a str,
    /// Of the key.
    pub memory: &'a mut Remembered,
    /// Of the store.
    pub clock: &'a mut StoreClock,
    /// When the store was last seen to refuse what it must refuse.
    pub proved: Option<Moment>,
    /// When the answer was received, or the request began.
    pub now: Moment,
    /// A random number.
    pub nonce: u64,
}

/// What comes next.
#[derive(Debug, Clone)]
pub enum UpdateStep<T> {
    /// See the store refuse what it must refuse, because [`proof_is_due`]: then decide again.
    Prove,
    /// Read the register, and decide.
    Read,
    /// Write the register if it has this version: [`Update::written`] or [`Update::refused`].
    Write {
        /// The condition.
        expect: Expect,
        /// The content.
        record: Record,
    },
    /// The answer.
    Done(Result<T, Unknown>),
}

#[derive(Debug, Clone, Hash)]
struct Written<T> {
    expect: Expect,
    record: Record,
    sent: Moment,
    answer: T,
}

impl<T> Update<T> {
    /// So often may other clients be faster, each of which has changed the key.
    const ROUNDS: usize = 16;
    /// So often may a write be refused although nobody has changed the key, within half a second.
    const UNCHANGED: usize = 5;
    /// After the second refusal: the first one is settled by a read.
    const PAUSES: RetryPlan = RetryPlan { first: Duration::from_millis(50), longest: Duration::from_millis(500) };

    /// Nothing is written yet. The holder is that of a claim or of its release.
    pub const fn new(holder: Option<HolderId>) -> Self {
        Self { holder, writes: Vec::new(), refusal: String::new() }
    }

    /// The next step after this read. Without one, after what this client has written last: it needs no read to replace that.
    pub fn judge(
        &mut self,
        reading: Option<&Reading>,
        decide: impl FnOnce(&View<'_>) -> Decision<T>,
        cx: &mut UpdateEnv<'_>,
    ) -> UpdateStep<T> {
        let Some(reading) = reading else {
            let Some((stored, life)) = cx.memory.recall(cx.now) else { return UpdateStep::Read };
            return match self.decide(&stored, life, None, decide, cx) {
                Decision::Write { record, answer } => self.write(stored.expect(), record, answer, cx),
                Decision::Done(_) => UpdateStep::Read,
            };
        };
        cx.clock.hear(reading.date, cx.now);
        let life = cx.memory.observe(reading, cx.clock, cx.now);
        if let Stored::Record(version, record) = &reading.stored
            && let Some(own) = self.writes.iter().position(|write| write.record.nonce == record.nonce)
        {
            return UpdateStep::Done(Ok(self.applied(own, version.clone(), cx)));
        }
        let expect = reading.stored.expect();
        match self.decide(&reading.stored, life, reading.modified, decide, cx) {
            Decision::Write { record, answer } => match self.refused_too_often(&expect, cx.key) {
                Some((fault, why)) => UpdateStep::Done(Err(Unknown::new(cx.backend, fault, why))),
                None => self.write(expect, record, answer, cx),
            },
            Decision::Done(answer) => {
                if let Some(holder) = self.holder
                    && !cx.memory.may_arrive(holder, &expect)
                {
                    cx.memory.forget_claims(holder);
                }
                UpdateStep::Done(answer)
            }
        }
    }

    /// [`UpdateStep::Write`] was executed, and the store told this time. The answer is `None` if there was none.
    pub fn written(&mut self, version: Version, date: Option<u64>, cx: &mut UpdateEnv<'_>) -> Option<T> {
        cx.clock.hear(date, cx.now);
        let last = self.writes.len().checked_sub(1)?;
        Some(self.applied(last, version, cx))
    }

    /// [`UpdateStep::Write`] was refused, in these words of the store: a read settles it, after this pause.
    pub fn refused(&mut self, why: String, random: u64) -> Duration {
        self.refusal = why;
        let earlier = self.writes.len().checked_sub(2).and_then(|earlier| u32::try_from(earlier).ok());
        earlier.map_or(Duration::ZERO, |earlier| Self::PAUSES.pause(earlier, Expiry::Never, random))
    }

    /// Why this is not written once more.
    fn refused_too_often(&self, expect: &Expect, key: &Key) -> Option<(Fault, String)> {
        let refusal = &self.refusal;
        if self.writes.iter().rev().take_while(|write| write.expect == *expect).count() >= Self::UNCHANGED {
            let why = format!("it refuses to write {key}, although nobody has changed it meanwhile: {refusal}");
            return Some((Fault::Unsupported, why));
        }
        let why = || (Fault::Busy, format!("other clients change {key} too often: {refusal}"));
        (self.writes.len() >= Self::ROUNDS).then(why)
    }

    fn applied(&mut self, write: usize, version: Version, cx: &mut UpdateEnv<'_>) -> T {
        let Written { record, sent, answer, .. } = self.writes.swap_remove(write);
        if let Some(holder) = self.holder {
            cx.memory.forget_claims(holder);
        }
        cx.memory.write(LastWrite { version, record, sent });
        answer
    }

    fn write(&mut self, expect: Expect, record: Record, answer: T, cx: &mut UpdateEnv<'_>) -> UpdateStep<T> {
        let claims = self.holder.filter(|_| record.hold.is_some());
        // A grant counts from after the proof, so none of its writes may have been sent before.
        if self.writes.is_empty() && proof_is_due(cx.proved, claims.is_some(), cx.now) {
            return UpdateStep::Prove;
        }
        let record = Record { nonce: cx.nonce, ..record };
        cx.memory.known = None;
        if let Some(holder) = claims {
            cx.memory.send_claim(holder, &expect);
        }
        self.writes.push(Written { expect: expect.clone(), record: record.clone(), sent: cx.now, answer });
        UpdateStep::Write { expect, record }
    }

    fn decide(
        &self,
        stored: &Stored,
        life: Life,
        modified: Option<u64>,
        decide: impl FnOnce(&View<'_>) -> Decision<T>,
        cx: &UpdateEnv<'_>,
    ) -> Decision<T> {
        // Its tokens, if it was deleted, were less than this.
        let absent = Record::free(cx.clock.next_time(cx.now));
        let (record, current) = match (stored, life) {
            (Stored::Foreign(what), _) => (&absent, Current::Foreign(what)),
            (Stored::Absent, _) => (&absent, Current::Free),
            (Stored::Record(_, record), life) => match (&record.hold, life) {
                (None, _) => (record, Current::Free),
                (Some(hold), Some(left)) => (record, Current::Held(hold, left)),
                (Some(hold), None) => (record, Current::Over(hold)),
            },
        };
        let claim_may_arrive = self.holder.is_some_and(|holder| cx.memory.may_arrive(holder, &stored.expect()));
        let (key, name, time) = (cx.key, cx.backend, cx.clock.time(cx.now));
        decide(&View { key, name, record, current, time, modified, claim_may_arrive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::{StoreTiming, decisions};
    use crate::{
        Acquire, Claim, Eviction, Expiry, Foreign, Holder, HolderId, HolderInfo, Holding, Intent, Liveness, Occupant,
        Owner, Release, Renew, Renewal, Ttl,
    };
    use std::rc::Rc;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000;

    /// A client, its time, and the number of its writes.
    struct Client {
        key: Key,
        memory: Remembered,
        clock: StoreClock,
        now: Moment,
        nonce: u64,
    }

    impl Client {
        fn new() -> Self {
            let (memory, clock) = (Remembered::default(), StoreClock::new(StoreTiming::default()));
            Self { key: key(), memory, clock, now: Moment::from_micros(0), nonce: 0 }
        }

        fn context(&mut self, proved: Option<Moment>) -> UpdateEnv<'_> {
            self.nonce += 1;
            let Self { key, memory, clock, now, nonce } = self;
            UpdateEnv { key, backend: "here", memory, clock, proved, now: *now, nonce: *nonce }
        }

        fn judge<T>(&mut self, request: &mut Request<T>, reading: Option<&Reading>) -> UpdateStep<T> {
            request.update.judge(reading, &*request.decide, &mut self.context(Some(self.now)))
        }

        fn written<T>(&mut self, request: &mut Request<T>, version: &str, date: Option<u64>) -> T {
            request.update.written(Version::new(version), date, &mut self.context(None)).unwrap()
        }
    }

    type Decide<T> = dyn Fn(&View<'_>) -> Decision<T>;

    #[derive(Clone)]
    struct Request<T> {
        update: Update<T>,
        decide: Rc<Decide<T>>,
    }

    impl<T> Request<T> {
        fn new(holder: Option<HolderId>, decide: impl Fn(&View<'_>) -> Decision<T> + 'static) -> Self {
            Self { update: Update::new(holder), decide: Rc::new(decide) }
        }
    }

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    fn claim(holder: u8, intent: Intent) -> Request<Acquire> {
        let holder = Holder { id: HolderId::from_bytes([holder; 16]), owner: Owner::from_text("o") };
        let (id, claim) = (holder.id, Claim::new(key(), holder, Ttl::default(), intent));
        Request::new(Some(id), move |view| decisions::claim(&claim, view))
    }

    fn renewal(holder: u8) -> Request<Renew> {
        let renewal = Renewal::new(key(), HolderId::from_bytes([holder; 16]), Ttl::default());
        Request::new(None, move |view| decisions::renew(&renewal, view))
    }

    fn release(holder: u8) -> Request<Release> {
        let holder = HolderId::from_bytes([holder; 16]);
        Request::new(Some(holder), move |view| decisions::release(holder, view))
    }

    fn read(stored: Stored, modified: u64, date: u64) -> Reading {
        Reading { stored, modified: Some(modified * SECOND), date: Some(date * SECOND) }
    }

    /// By a store that tells no time.
    fn untold(stored: Stored) -> Reading {
        Reading { stored, modified: None, date: None }
    }

    fn stored(version: &str, record: Record) -> Stored {
        Stored::Record(Version::new(version), record)
    }

    fn done<T>(step: UpdateStep<T>) -> T {
        match step {
            UpdateStep::Done(answer) => answer.unwrap(),
            _ => panic!("it is not done"),
        }
    }

    fn write<T>(step: UpdateStep<T>) -> (Expect, Record) {
        match step {
            UpdateStep::Write { expect, record } => (expect, record),
            _ => panic!("it writes nothing"),
        }
    }

    /// Takes the key at second 100 with the version `1`.
    fn take(client: &mut Client) -> Record {
        let mut call = claim(1, Intent::Try);
        assert!(matches!(client.judge(&mut call, None), UpdateStep::Read));
        let (expect, record) = write(client.judge(&mut call, Some(&read(Stored::Absent, 0, 100))));
        assert_eq!((expect, record.token), (None, 101 * SECOND + 1), "greater than all tokens up to now");
        let granted = client.written(&mut call, "1", Some(100 * SECOND));
        assert!(matches!(granted, Acquire::Granted { tokens } if tokens.last().get() == record.token));
        record
    }

    #[test]
    fn a_refused_write_is_recognized_also_if_it_was_not_the_last() {
        let mut client = Client::new();
        let mut call = claim(1, Intent::Try);
        let free = read(stored("1", Record::free(7)), 0, 0);
        let (_, first) = write(client.judge(&mut call, Some(&free)));
        let _ = call.update.refused(String::new(), 0);
        let (_, second) = write(client.judge(&mut call, Some(&free)));
        assert_ne!(first.nonce, second.nonce);
        let _ = call.update.refused(String::new(), 0);
        let granted = done(client.judge(&mut call, Some(&read(stored("2", first.clone()), 0, 0))));
        assert!(matches!(granted, Acquire::Granted { tokens } if tokens.last().get() == first.token));
        assert_eq!(write(client.judge(&mut renewal(1), None)).0, Some(Version::new("2")));
    }

    #[test]
    fn a_call_that_is_always_too_late_ends() {
        let mut client = Client::new();
        let mut call = claim(1, Intent::Try);
        let refusal = loop {
            let free = Record { nonce: 1 << 40, ..Record::free(7) };
            match client.judge(&mut call, Some(&read(stored(&client.nonce.to_string(), free), 0, 0))) {
                UpdateStep::Write { .. } => assert!(client.nonce < 100),
                UpdateStep::Done(answer) => break answer.unwrap_err(),
                _ => panic!("it has just read"),
            }
        };
        assert!(refusal.to_string().contains("too often"), "{refusal}");
    }

    #[test]
    fn what_is_not_understood_is_never_overwritten() {
        let mut client = Client::new();
        let what = Foreign::other("a photograph");
        let seen = read(Stored::Foreign(what.clone()), 0, u64::MAX / SECOND);
        let holder = Occupant::Foreign(what);
        for intent in [Intent::Try, Intent::Poll] {
            let busy = done(client.judge(&mut claim(1, intent), Some(&seen)));
            assert!(matches!(busy, Acquire::Busy(occupied) if occupied.expiry == Expiry::Never));
        }
        assert_eq!(done(client.judge(&mut renewal(1), Some(&seen))), Renew::TakenBy(holder.clone().into()));
        assert_eq!(done(client.judge(&mut release(1), Some(&seen))), Release::TakenBy(holder.clone().into()));
        let inspected = done(client.judge(&mut Request::new(None, decisions::inspect), Some(&seen)));
        assert_eq!(inspected.unwrap().first().occupant, holder);
        let seen_before = Holding::new(key(), HolderInfo::new(holder, Expiry::Never));
        let mut eviction = Request::new(None, move |view| decisions::evict(&seen_before, view));
        let evicted = done(client.judge(&mut eviction, Some(&seen)));
        assert!(matches!(evicted, Eviction::Refused(text) if text.contains("a photograph")));
        let completion = client.judge(&mut Request::new(None, decisions::read_done), Some(&seen));
        assert!(matches!(completion, UpdateStep::Done(Err(why)) if why.to_string().contains("another program")));
    }

    #[test]
    fn a_hold_shows_when_it_was_written_if_the_store_tells_the_time() {
        let (mut holder, mut other) = (Client::new(), Client::new());
        let record = take(&mut holder);
        let look = |client: &mut Client, seen: &Reading| {
            let seen = done(client.judge(&mut Request::new(None, decisions::inspect), Some(seen)));
            seen.unwrap().first().alive
        };
        let ago = |secs| Some(Liveness::of_lease(Duration::from_secs(secs), Ttl::default().get()));
        assert_eq!(look(&mut other, &read(stored("1", record.clone()), 100, 107)), ago(7));
        let untold = untold(stored("1", record));
        assert_eq!(look(&mut other, &untold), None);
        assert_eq!(look(&mut Client::new(), &untold), None);
    }

    #[test]
    fn with_and_without_a_clock_of_the_store_a_hold_is_over_after_it_was_observed_for_its_lease() {
        let stored = stored("1", take(&mut Client::new()));
        for seen in [untold(stored.clone()), read(stored, 100, 100)] {
            let mut other = Client::new();
            let look = |client: &mut Client| client.judge(&mut claim(2, Intent::Try), Some(&seen));
            assert!(matches!(done(look(&mut other)), Acquire::Busy(_)));
            other.now = other.now + Ttl::default().get() + Duration::from_millis(301);
            assert!(matches!(done(look(&mut other)), Acquire::Busy(_)), "its clock may be fast");
            other.now = other.now + Duration::from_millis(1);
            assert_eq!(write(look(&mut other)).0, Some(Version::new("1")));
        }
    }
}
