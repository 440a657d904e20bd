//! Clients that crashed, records of other programs, and deletions.
#![allow(clippy::unwrap_used)]

use fencelock_core::{
    Acquire, Backend, Claim, Eviction, Expiry, FencingToken, Holder, HolderId, Intent, Key, ManualClock, Owner,
    Release, Renew, Renewal, Ttl, Unknown,
};
use fencelock_register::{MemoryRegister, RegisterLocks};
use futures_util::future::FutureExt;
use std::sync::Arc;
use std::time::Duration;

/// Two clients of one store.
struct Clients {
    clock: Arc<ManualClock>,
    store: MemoryRegister,
    one: RegisterLocks,
    other: RegisterLocks,
}

impl Clients {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Duration::from_secs(3600)));
        let store = MemoryRegister::with_clock(clock.clone(), Duration::from_secs(1));
        let locks = || RegisterLocks::new(Arc::new(store.clone())).with_clock(clock.clone());
        let (one, other) = (locks(), locks());
        Self { clock, store, one, other }
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
