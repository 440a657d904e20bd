//! What the tests of lock files share.

pub(crate) mod process;

use fencelock::backends::File;
use fencelock_core::{
    Acquire, Backend, Claim, Downgrade, Event, FencingToken, Holder, HolderId, Holding, Intent, Key, Listener, Mode,
    Occupant, Owner, Renew, Renewal, Ttl,
};
use futures_util::FutureExt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Far more than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A directory for one test, removed with it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fencelock-test-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn locks(&self) -> File {
        File::open(self.path()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The answer of a call, which must not need a runtime or a second poll.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a lock file answers at once")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A holder that no other call and no other process gets.
pub(crate) fn holder() -> Holder {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut id = [0; 16];
    id[..4].copy_from_slice(&std::process::id().to_be_bytes());
    id[12..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Holder { id: HolderId::from_bytes(id), owner: Owner::new("box", std::process::id(), Some("test")).unwrap() }
}

pub(crate) fn claim(name: &str, intent: Intent) -> Claim {
    Claim::new(key(name), holder(), Ttl::default(), intent)
}

/// Takes a key that has room.
pub(crate) fn take_in_mode(locks: &File, name: &str, mode: Mode) -> (Claim, FencingToken) {
    let claim = claim(name, Intent::Try).with_mode(mode);
    let fence = fence(acquire(locks, &claim));
    (claim, fence)
}

pub(crate) fn permits(weight: u32, limit: u32) -> Mode {
    Mode::permits(weight, limit).unwrap()
}

pub(crate) fn seen(locks: &File, name: &str) -> Holding {
    now(locks.inspect(&key(name))).unwrap().expect("held")
}

pub(crate) fn acquire(locks: &File, claim: &Claim) -> Acquire {
    now(locks.acquire(claim)).answer.unwrap()
}

pub(crate) fn fence(answer: Acquire) -> FencingToken {
    match answer {
        Acquire::Granted { tokens } => tokens.last(),
        other => panic!("not granted: {other:?}"),
    }
}

/// Takes a free key.
pub(crate) fn take(locks: &File, name: &str) -> (Claim, FencingToken) {
    let claim = claim(name, Intent::Try);
    let fence = fence(acquire(locks, &claim));
    (claim, fence)
}

pub(crate) fn free(locks: &File, claim: &Claim) -> fencelock_core::Release {
    now(locks.release(&claim.key, &claim.holder.id)).unwrap()
}

pub(crate) fn downgrade(locks: &File, held: &Claim) -> Downgrade {
    now(locks.downgrade(&Renewal::new(held.key.clone(), held.holder.id, held.ttl))).unwrap()
}

pub(crate) fn renew(locks: &File, claim: &Claim) -> Renew {
    let renewal = Renewal::new(claim.key.clone(), claim.holder.id, claim.ttl);
    now(locks.renew(&[renewal])).remove(0).unwrap()
}

pub(crate) fn is_busy(locks: &File, claim: &Claim) -> bool {
    matches!(acquire(locks, claim), Acquire::Busy(_))
}

pub(crate) fn busy_with(answer: Acquire) -> Occupant {
    match answer {
        Acquire::Busy(occupied) => occupied.holders.into_first(),
        other => panic!("not busy: {other:?}"),
    }
}

/// Sends the events of a backend to a channel.
#[derive(Debug)]
pub(crate) struct EventSender(Sender<Event>);

impl Listener for EventSender {
    fn event(&self, event: &Event) {
        let _ = self.0.send(event.clone());
    }
}

/// The listener receives events as long as it is kept.
pub(crate) fn listen(locks: &File) -> (Arc<dyn Listener>, Receiver<Event>) {
    let (sender, receiver) = mpsc::channel();
    let listener: Arc<dyn Listener> = Arc::new(EventSender(sender));
    locks.listen(listener.clone());
    (listener, receiver)
}

/// Waits for the event that a key has changed, without requests meanwhile.
pub(crate) fn expect_change(events: &Receiver<Event>, name: &str) {
    let changed = Event::Changed { key: key(name) };
    while events.recv_timeout(TIMEOUT).expect("an event for the change") != changed {}
}
