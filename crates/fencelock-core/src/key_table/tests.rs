use super::*;
use crate::{Acquire, Claim, Holder, HolderId, Intent, Owner, Release, Renew, Renewal, Resize, TokenBlock, Ttl};
use std::num::NonZeroU32;

fn claim(key: &str, holder: u8, intent: Intent) -> Claim {
    let holder = Holder { id: HolderId::from_bytes([holder; 16]), owner: Owner::from_text("") };
    Claim::new(Key::new(key).unwrap(), holder, Ttl::default(), intent)
}

/// A table and its clock, in microseconds.
struct Ticking(KeyTable, u64);

impl Ticking {
    fn new() -> Self {
        Self(KeyTable::new("memory"), 1_000_000)
    }

    /// Runs a step a microsecond later.
    fn step<T>(&mut self, key: &Key, step: impl FnOnce(&mut KeyStep<'_>) -> T) -> T {
        self.1 += 1;
        self.0.step(key, ClockReading::from_micros(self.1), step)
    }

    fn tokens(&mut self, claim: &Claim) -> TokenBlock {
        match self.step(&claim.key, |key| key.claim(claim, None)).unwrap() {
            Acquire::Granted { tokens } => tokens,
            other => panic!("should be granted: {other:?}"),
        }
    }

    fn release(&mut self, claim: &Claim) -> Release {
        self.step(&claim.key, |key| key.release(&claim.holder.id)).unwrap()
    }

    /// How many keys are left when those that are free are no longer young.
    fn keys(&mut self) -> usize {
        for _ in 0..=self.0.young.len() {
            self.0.forget_free(&Key::new("none").unwrap(), u64::MAX);
        }
        self.0.by_key.len()
    }
}

#[test]
fn a_key_that_is_only_looked_at_is_not_kept() {
    for table in [KeyTable::new("memory"), KeyTable::new("memory").with_leases()] {
        let (mut table, claim) = (Ticking(table, 1_000_000), claim("k", 1, Intent::Poll));
        let renewal = Renewal::new(claim.key.clone(), claim.holder.id, Ttl::default());
        assert_eq!(table.step(&claim.key, |key| key.inspect()), None);
        assert_eq!(table.step(&claim.key, |key| key.claim(&claim, None)).unwrap(), Acquire::Gone);
        assert_eq!(table.release(&claim), Release::Absent);
        assert_eq!(table.step(&claim.key, |key| key.resize(3)).unwrap(), Resize::Free);
        table.step(&claim.key, |key| {
            key.watch();
        });
        assert_eq!(table.step(&claim.key, |key| key.renew(&renewal)), Renew::Absent);
        assert_eq!(table.keys(), 0);
    }
}

#[test]
fn keys_that_are_free_again_take_no_memory() {
    let mut table = Ticking::new();
    let claims: Vec<_> = (0..100_000).map(|n| claim(&format!("k{n}"), 1, Intent::Try)).collect();
    for claim in &claims {
        table.tokens(claim);
    }
    assert_eq!(table.keys(), claims.len());
    for claim in &claims {
        table.release(claim);
    }
    assert_eq!(table.keys(), 0);
}

#[test]
fn every_key_has_a_block_of_tokens_however_busy_the_others_are() {
    let (mut table, wanted) = (Ticking::new(), NonZeroU32::new(64).unwrap());
    for round in 0..1000 {
        table.1 += 100;
        let other = format!("k{round}");
        for key in ["busy", &other] {
            let claim = claim(key, 1, Intent::Try).with_block(wanted);
            let tokens = table.tokens(&claim).count();
            // Before the first key was removed, a new one has no token to continue after.
            assert!(round < 200 || tokens == wanted, "round {round}: {tokens} tokens");
            table.release(&claim);
        }
    }
    let kept = table.0.by_key.len();
    assert!(kept <= 200, "{kept} keys after 100 releases in 10 ms");
}

#[test]
fn the_tokens_of_a_key_increase_although_it_was_free() {
    let (mut table, held) = (Ticking::new(), claim("held", 1, Intent::Try));
    table.tokens(&held);
    let mut last = None;
    for round in 0..200_u8 {
        // The clock stands still.
        table.1 -= 1;
        let claim = claim("k", round, Intent::Try);
        let token = Some(table.tokens(&claim).last());
        assert!(token > last, "round {round}: {token:?} after {last:?}");
        last = token;
        table.release(&claim);
        table.1 -= 1;
        table.keys();
    }
    // A key that stayed in use meanwhile continues too.
    let waiting = claim("held", 2, Intent::Enqueue);
    assert!(matches!(table.step(&held.key, |key| key.claim(&waiting, None)).unwrap(), Acquire::Queued { .. }));
    table.release(&held);
    assert_eq!(table.keys(), 1, "it was handed over");
}

#[test]
fn a_key_is_removed_although_its_end_is_watched() {
    let (mut table, claim) = (Ticking::new(), claim("k", 1, Intent::Try));
    table.tokens(&claim);
    table.step(&claim.key, |key| {
        key.watch();
    });
    table.release(&claim);
    assert_eq!(table.0.take_events(), [Event::Changed { key: claim.key.clone() }]);
    assert_eq!(table.keys(), 0);
}
