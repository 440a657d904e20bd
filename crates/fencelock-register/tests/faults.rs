//! Answers that are lost, requests that arrive late, records of other programs, and deletions.
#![allow(clippy::unwrap_used)]

use fencelock_core::register::{Expect, Record};
use fencelock_core::{
    Acquire, Answer, Backend, Claim, Eviction, Expiry, Fault, FencingToken, Holder, HolderId, Intent, Key, ManualClock,
    Owner, Release, Renew, Renewal, Ttl, Unknown,
};
use fencelock_register::{Found, MemoryRegister, Register, RegisterLocks, WriteReply};
use futures_util::future::FutureExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to the next write.
#[derive(Debug, Default)]
enum Next {
    #[default]
    Answered,
    /// It is executed, and its answer is lost.
    Unanswered,
    /// It stays in the network.
    Late,
}

/// A store behind a bad network.
#[derive(Debug)]
struct Faulty {
    store: MemoryRegister,
    next: Mutex<Next>,
    late: Mutex<Vec<(Key, Expect, Vec<u8>)>>,
}

impl Register for Faulty {
    fn name(&self) -> String {
        self.store.name()
    }

    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
        self.store.read(key)
    }

    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
        let lost = || Unknown::new(self.name(), Fault::Timeout, "");
        match std::mem::take(&mut *self.next.lock().unwrap()) {
            Next::Answered => self.store.write_if(key, expect, bytes),
            Next::Unanswered => Box::pin(async move {
                self.store.write_if(key, expect, bytes).await?;
                Err(lost())
            }),
            Next::Late => {
                self.late.lock().unwrap().push((key.clone(), expect.clone(), bytes));
                Box::pin(std::future::pending())
            }
        }
    }

    fn list(&self) -> Answer<'_, Vec<Key>> {
        self.store.list()
    }
}

/// Two clients of one store, the first of them behind a bad network.
struct Clients {
    clock: Arc<ManualClock>,
    store: MemoryRegister,
    network: Arc<Faulty>,
    one: RegisterLocks,
    other: RegisterLocks,
}

impl Clients {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let store = MemoryRegister::with_clock(clock.clone(), Duration::from_secs(1));
        let network = Arc::new(Faulty { store: store.clone(), next: Mutex::default(), late: Mutex::default() });
        let locks = |register| RegisterLocks::new(register).with_clock(clock.clone());
        let (one, other) = (locks(network.clone()), locks(Arc::new(store.clone())));
        Self { clock, store, network, one, other }
    }

    fn next(&self, next: Next) {
        *self.network.next.lock().unwrap() = next;
    }

    /// What was late arrives now.
    fn arrive(&self) -> Vec<WriteReply> {
        let late = std::mem::take(&mut *self.network.late.lock().unwrap());
        late.into_iter().map(|(key, expect, bytes)| now(self.store.write_if(&key, &expect, bytes)).unwrap()).collect()
    }
}

fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().expect("a store in memory answers at once")
}

fn key() -> Key {
    Key::new("orders").unwrap()
}

fn claim(holder: u8) -> Claim {
    let holder = Holder { id: HolderId::from_bytes([holder; 16]), owner: Owner::new("web-1", 42, None).unwrap() };
    Claim::new(key(), holder, Ttl::default(), Intent::Try)
}

fn acquire(locks: &RegisterLocks, holder: u8) -> Result<Acquire, Unknown> {
    now(locks.acquire(&claim(holder))).answer
}

fn token(answer: Result<Acquire, Unknown>) -> FencingToken {
    match answer.unwrap() {
        Acquire::Granted { tokens } => tokens.last(),
        other => panic!("{other:?}"),
    }
}

fn renew(locks: &RegisterLocks, holder: u8) -> Renew {
    let renewal = [Renewal::new(key(), HolderId::from_bytes([holder; 16]), Ttl::default())];
    now(locks.renew(&renewal)).remove(0).unwrap()
}

fn release(locks: &RegisterLocks, holder: u8) -> Release {
    now(locks.release(&key(), &HolderId::from_bytes([holder; 16]))).unwrap()
}

#[test]
fn a_claim_without_an_answer_is_repeated_with_the_same_token() {
    let clients = Clients::new();
    clients.next(Next::Unanswered);
    assert!(acquire(&clients.one, 1).is_err());
    assert!(matches!(acquire(&clients.other, 2), Ok(Acquire::Busy(_))));
    let first = token(acquire(&clients.one, 1));
    assert_eq!(token(acquire(&clients.one, 1)), first);
    assert_eq!(release(&clients.one, 1), Release::Released);
    assert!(token(acquire(&clients.other, 2)) > first);
}

#[test]
fn a_claim_that_arrives_after_its_release_takes_nothing() {
    // On a record that does not exist, and on one that does.
    let clients = Clients::new();
    for _ in 0..2 {
        clients.next(Next::Late);
        assert!(clients.one.acquire(&claim(1)).now_or_never().is_none(), "it is dropped");
        assert_eq!(release(&clients.one, 1), Release::Absent);
        assert_eq!(clients.arrive(), [WriteReply::Refused { why: String::new() }]);
        token(acquire(&clients.other, 2));
        assert_eq!(release(&clients.other, 2), Release::Released);
    }
}

#[test]
fn a_release_without_an_answer_is_settled_by_the_next() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    clients.next(Next::Late);
    let holder = HolderId::from_bytes([1; 16]);
    assert!(clients.one.release(&key(), &holder).now_or_never().is_none(), "it is dropped");
    assert_eq!(release(&clients.one, 1), Release::Released);
    let other = token(acquire(&clients.other, 2));
    assert_eq!(clients.arrive(), [WriteReply::Refused { why: String::new() }]);
    assert_eq!(renew(&clients.other, 2), Renew::Renewed { waiters: 0 });
    assert_eq!(token(acquire(&clients.other, 2)), other);
}

#[test]
fn a_client_that_crashed_keeps_the_key_for_its_lease_and_the_margins_of_the_clocks() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    // The TTL, 1 s for times that are cut off, and 2 s for front ends whose clocks differ.
    clients.clock.advance(Duration::from_secs(32));
    assert!(matches!(acquire(&clients.other, 2), Ok(Acquire::Busy(_))));
    clients.clock.advance(Duration::from_secs(1));
    token(acquire(&clients.other, 2));
}

#[test]
fn a_client_that_waits_needs_only_the_lease() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    assert!(matches!(acquire(&clients.other, 2), Ok(Acquire::Busy(_))));
    clients.clock.advance(Duration::from_millis(30_301));
    assert!(matches!(acquire(&clients.other, 2), Ok(Acquire::Busy(_))));
    clients.clock.advance(Duration::from_millis(1));
    token(acquire(&clients.other, 2));
}

#[test]
fn a_renewal_without_an_answer_is_repeated() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    clients.next(Next::Unanswered);
    let renewal = [Renewal::new(key(), HolderId::from_bytes([1; 16]), Ttl::default())];
    assert!(now(clients.one.renew(&renewal)).remove(0).is_err());
    assert_eq!(renew(&clients.one, 1), Renew::Renewed { waiters: 0 });
}

#[test]
fn a_record_that_is_deleted_under_its_holder_is_a_loss_and_its_tokens_do_not_come_back() {
    let clients = Clients::new();
    let before = token(acquire(&clients.one, 1));
    clients.store.delete(&key());
    assert_eq!(renew(&clients.one, 1), Renew::Absent);
    assert_eq!(now(clients.one.inspect(&key())), Ok(None));
    // In the second of the last write, the clock of the store cannot tell them apart.
    clients.clock.advance(Duration::from_secs(1));
    assert!(token(acquire(&clients.other, 2)) > before);
    assert!(matches!(renew(&clients.one, 1), Renew::TakenBy(_)));
    assert!(matches!(release(&clients.one, 1), Release::TakenBy(_)));
    assert_eq!(renew(&clients.other, 2), Renew::Renewed { waiters: 0 });
}

#[test]
fn what_another_program_has_stored_is_busy_shown_and_never_changed() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    let ours = String::from_utf8(clients.store.get(&key()).unwrap()).unwrap();
    for foreign in [
        Vec::new(),
        b"{\"ID\": \"terraform\"}".to_vec(),
        vec![0xff; 10 << 20],
        ours.replace("fencelock 1", "fencelock 2").into_bytes(),
        ours.replace("key orders", "key Orders").into_bytes(),
        ours.replace("\n\n", "\n!permits 3\n").into_bytes(),
    ] {
        clients.store.put(&key(), foreign.clone());
        for locks in [&clients.one, &clients.other] {
            let Ok(Acquire::Busy(occupied)) = acquire(locks, 3) else { panic!("it is busy") };
            assert!(occupied.holders.to_string().contains("another program"), "{}", occupied.holders);
            assert_eq!(occupied.expiry, Expiry::Never);
            assert!(matches!(release(locks, 1), Release::TakenBy(_)) && matches!(renew(locks, 1), Renew::TakenBy(_)));
            let backend: &dyn Backend = locks;
            let seen = now(backend.inspect(&key())).unwrap().unwrap();
            assert!(!matches!(now(backend.evict(&seen)), Ok(Eviction::Evicted)));
            assert!(now(backend.read_completion(&key())).is_err());
        }
        assert_eq!(clients.store.get(&key()), Some(foreign));
    }
}

#[test]
fn equal_holds_are_different_bytes_and_a_listing_shows_what_is_held() {
    let clients = Clients::new();
    token(acquire(&clients.one, 1));
    let first = clients.store.get(&key()).unwrap();
    assert_eq!(renew(&clients.one, 1), Renew::Renewed { waiters: 0 });
    let second = clients.store.get(&key()).unwrap();
    assert!(first != second && first.len() == second.len() && Record::may_be_held(first.len() as u64));
    assert_eq!(now(clients.store.list()).unwrap(), [key()]);
    assert_eq!(release(&clients.one, 1), Release::Released);
    assert!(now(clients.store.list()).unwrap().is_empty());
}

#[test]
fn any_name_of_a_key_is_kept() {
    let clients = Clients::new();
    for name in ["a", "A", "a/../b", "订单:42", " ", &"锁".repeat(170), &"k".repeat(512)] {
        let claim = Claim::new(Key::new(name).unwrap(), claim(1).holder, Ttl::default(), Intent::Try);
        token(now(clients.one.acquire(&claim)).answer);
    }
    let backend: &dyn Backend = &clients.other;
    assert_eq!(now(backend.list()).unwrap().len(), 7);
}
