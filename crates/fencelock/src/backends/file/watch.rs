//! Notifies waiting tasks when another process releases a lock file. This is a hint: without it, waiters poll.

use super::directory::{Directory, file_name, is_used, key_of, lock_file_of};
use super::flock_guard::{Probe, probe};
use fencelock_core::{BootClock, Clock, Event, Key, Listeners, Moment, lock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The delays of further probes after a close was reported and the file was still locked: the kernel reports the close of
/// the file of a dead holder just before it releases the lock.
const PROBE_DELAYS: [Duration; 3] = [Duration::from_micros(100), Duration::from_millis(1), Duration::from_millis(10)];

/// After the close of a file of a row, the waiters that still wait are notified again after this time: the other holders keep the
/// lock file locked, so a probe does not show whether the kernel has released the locks of a dead holder.
const ROW_DELAY: Duration = Duration::from_millis(10);

/// Holds are watched only after this time: the kernel takes ten milliseconds to close what watches a directory, which the end of a
/// program waits for, and most holds of short programs are shorter.
const LOSSES_AFTER: Duration = Duration::from_millis(50);

/// The keys with waiters in this process, by file name; `None` while no thread watches. Each subscription is notified once,
/// then the waiters subscribe again.
type Subscriptions = Arc<Mutex<Option<HashMap<String, Key>>>>;

/// A background thread, from the first hold or waiting claim until this value is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    directory: Directory,
    listeners: Arc<Listeners>,
    subscriptions: Subscriptions,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    inotify: Arc<OwnedFd>,
    /// The thread ends when this end of its pipe is closed.
    _stop: PipeWriter,
}

/// What the kernel reports: that a lock file was deleted or moved, for its holder.
fn losses() -> WatchFlags {
    WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR
}

/// Also that a file was closed: for waiters. It wakes this process for each release in the directory.
fn releases() -> WatchFlags {
    losses() | WatchFlags::CLOSE_WRITE
}

impl Watch {
    pub(super) fn new(directory: Directory, listeners: Arc<Listeners>) -> Self {
        Self { directory, listeners, subscriptions: Subscriptions::default(), running: Mutex::default() }
    }

    /// Reports soon, and from then on, if a lock file is deleted, so that its holder in this process checks it at once.
    pub(super) fn watch_holds(&self) {
        let mut running = lock(&self.running);
        if lock(&self.subscriptions).is_none()
            && let Err(error) = self.start(&mut running, HashMap::new())
        {
            unnoticed(&self.directory, &error);
        }
    }

    /// Subscribes to the next end of a hold of this key. Returns whether the subscription is new; then an earlier end was not
    /// reported, and the caller must check again.
    pub(super) fn subscribe(&self, key: &Key) -> bool {
        // The mutex ensures that only one thread starts.
        let mut running = lock(&self.running);
        if let (Some(subscriptions), Some(running)) = (&mut *lock(&self.subscriptions), &*running) {
            let is_new = subscriptions.insert(file_name(key), key.clone()).is_none();
            // It may have been started for holds only.
            return is_new && add_watch(&running.inotify, &self.directory, releases()).is_ok();
        }
        let first = HashMap::from([(file_name(key), key.clone())]);
        let started = self.start(&mut running, first);
        if let Err(error) = &started {
            let directory = self.directory.name();
            tracing::debug!(%directory, %error, "no wake-ups from other processes: waiters poll");
        }
        started.is_ok()
    }

    fn start(&self, running: &mut Option<Running>, first: HashMap<String, Key>) -> io::Result<()> {
        let (stop, stopper) = io::pipe()?;
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        if !first.is_empty() {
            add_watch(&inotify, &self.directory, releases())?;
        }
        let watcher = Watcher {
            inotify: Arc::clone(&inotify),
            losses_due: first.is_empty().then(|| BootClock.now() + LOSSES_AFTER),
            stop,
            directory: self.directory.clone(),
            listeners: self.listeners.clone(),
            subscriptions: self.subscriptions.clone(),
            pending: HashMap::new(),
        };
        // From here on, the watcher clears it when it ends, even if it never starts.
        *lock(&self.subscriptions) = Some(first);
        thread::Builder::new().name("fencelock-file".into()).spawn(|| watcher.run())?;
        *running = Some(Running { inotify, _stop: stopper });
        Ok(())
    }
}

/// Whether the kernel can watch this directory.
pub(super) fn watched(directory: &Directory) -> io::Result<OwnedFd> {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    add_watch(&inotify, directory, releases())?;
    Ok(inotify)
}

/// Adds to the scope of earlier calls.
fn add_watch(inotify: &OwnedFd, directory: &Directory, scope: WatchFlags) -> io::Result<()> {
    inotify::add_watch(inotify, directory.path(), scope | WatchFlags::MASK_ADD)?;
    Ok(())
}

fn unnoticed(directory: &Directory, error: &io::Error) {
    let directory = directory.name();
    tracing::debug!(%directory, %error, "a deleted lock file is noticed at the next renewal");
}

/// The state of the thread.
struct Watcher {
    inotify: Arc<OwnedFd>,
    /// When to begin with the losses, if nothing is watched yet.
    losses_due: Option<Moment>,
    stop: PipeReader,
    directory: Directory,
    listeners: Arc<Listeners>,
    subscriptions: Subscriptions,
    pending: HashMap<String, PendingProbe>,
}

/// A subscribed file whose close was reported.
struct PendingProbe {
    attempts: usize,
    due: Moment,
}

/// Why the thread ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The owner of this thread was dropped.
    Stopped,
    /// The directory was deleted, and no more events follow.
    Lost,
}

impl Watcher {
    fn run(mut self) {
        let end = loop {
            if let Err(end) = self.wait().and_then(|()| self.read()) {
                break end;
            }
            self.probe_pending();
            self.watch_losses();
        };
        let listeners = self.listeners.clone();
        // A listener may start a new watch when it is notified, so this one must have ended.
        drop(self);
        if end == End::Lost {
            listeners.send(&Event::Reset);
        }
    }

    fn watch_losses(&mut self) {
        if self.losses_due.take_if(|due| *due <= BootClock.now()).is_none() {
            return;
        }
        match add_watch(&self.inotify, &self.directory, losses()) {
            // A file may have been deleted before.
            Ok(()) => self.listeners.send(&Event::Reset),
            Err(error) => unnoticed(&self.directory, &error),
        }
    }

    /// Waits for an event or for what is due next.
    fn wait(&self) -> Result<(), End> {
        let now = BootClock.now();
        let due = self.pending.values().map(|file| file.due).chain(self.losses_due);
        let timeout = due.map(|due| due.since(now)).min();
        // A duration of a few milliseconds always fits.
        let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if !fds[1].revents().is_empty() => Err(End::Stopped),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(End::Lost),
        }
    }

    fn read(&mut self) -> Result<(), End> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Vec::new();
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().and_then(|name| name.to_str().ok()).map(str::to_owned);
            events.push((event.events(), name));
        }
        events.into_iter().try_for_each(|(what, name)| self.happened(what, name))
    }

    fn happened(&mut self, what: ReadFlags, name: Option<String>) -> Result<(), End> {
        let end = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        if what.intersects(end) {
            return Err(End::Lost);
        }
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.listeners.send(&Event::Reset);
        }
        let Some(name) = name else { return Ok(()) };
        // The end of a hold in a row is the end of a slot; readers also wait for the end of a mark.
        let name = lock_file_of(&name).to_owned();
        if !what.contains(ReadFlags::CLOSE_WRITE) {
            self.replaced(&name);
        } else if lock(&self.subscriptions).as_ref().is_some_and(|subscriptions| subscriptions.contains_key(&name)) {
            self.pending.insert(name, PendingProbe { attempts: 0, due: BootClock.now() });
        }
        Ok(())
    }

    /// A lock file was deleted or moved: its holder has lost the lock, and a waiter may acquire it.
    fn replaced(&self, name: &str) {
        let key = take_subscription(&self.subscriptions, name);
        match key.or_else(|| key_of(name)) {
            Some(key) => self.listeners.send(&Event::Changed { key }),
            // The name of a long key does not contain it.
            None if is_used(name) => self.listeners.send(&Event::Reset),
            None => {}
        }
    }

    fn probe_pending(&mut self) {
        let now = BootClock.now();
        let (directory, subscriptions, listeners) = (&self.directory, &self.subscriptions, &self.listeners);
        self.pending.retain(|name, file| {
            if file.due > now {
                return true;
            }
            let probe = probe(&directory.path().join(name));
            if let Ok(Probe::Held(_)) = probe {
                let again = PROBE_DELAYS.get(file.attempts);
                file.attempts += 1;
                file.due = now + again.copied().unwrap_or_default();
                return again.is_some();
            }
            if let Some(key) = take_subscription(subscriptions, name) {
                listeners.send(&Event::Changed { key });
            }
            let is_last = file.attempts >= PROBE_DELAYS.len();
            (file.attempts, file.due) = (PROBE_DELAYS.len(), now + ROW_DELAY);
            matches!(probe, Ok(Probe::Row(Ok(_)))) && !is_last
        });
    }
}

/// Clears the subscriptions, even if a listener panicked.
impl Drop for Watcher {
    fn drop(&mut self) {
        *lock(&self.subscriptions) = None;
    }
}

/// The key, if there is a subscription. Removes it, and releases the mutex first: the listener may subscribe again.
fn take_subscription(subscriptions: &Subscriptions, name: &str) -> Option<Key> {
    lock(subscriptions).as_mut().and_then(|subscriptions| subscriptions.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::file::flock_guard::FlockGuard;
    use crate::backends::file::scratch::Scratch;
    use fencelock_core::Listener;

    #[derive(Debug, Default)]
    struct EventRecorder(Mutex<Vec<Event>>);

    impl Listener for EventRecorder {
        fn event(&self, event: &Event) {
            lock(&self.0).push(event.clone());
        }
    }

    fn watcher(directory: Directory, listeners: Arc<Listeners>, subscriptions: Subscriptions) -> Watcher {
        let (stop, _) = io::pipe().unwrap();
        Watcher {
            inotify: Arc::new(watched(&directory).unwrap()),
            losses_due: None,
            stop,
            directory,
            listeners,
            subscriptions,
            pending: HashMap::new(),
        }
    }

    #[test]
    fn a_file_that_is_unlocked_after_its_close_is_reported_by_a_later_probe() {
        let scratch = Scratch::new();
        let directory = Directory::open(scratch.path().to_owned()).unwrap();
        let (key, listeners, recorder) =
            (Key::new("k").unwrap(), Arc::<Listeners>::default(), Arc::<EventRecorder>::default());
        let listener: Arc<dyn Listener> = recorder.clone();
        listeners.add(&listener);
        let subscriptions = Subscriptions::new(Mutex::new(Some(HashMap::from([(file_name(&key), key.clone())]))));
        let guard = FlockGuard::take(&directory.file_of(&key)).unwrap().unwrap();
        let mut watcher = watcher(directory, listeners, subscriptions);
        assert_eq!(watcher.happened(ReadFlags::CLOSE_WRITE, Some(file_name(&key))), Ok(()));
        watcher.probe_pending();
        assert_eq!(lock(&recorder.0)[..], []);
        drop(guard);
        watcher.pending.values_mut().for_each(|file| file.due = Moment::default());
        watcher.probe_pending();
        assert_eq!(lock(&recorder.0)[..], [Event::Changed { key }]);
        assert!(watcher.pending.is_empty());
    }

    #[test]
    fn a_file_that_stays_locked_is_probed_four_times() {
        let scratch = Scratch::new();
        let directory = Directory::open(scratch.path().to_owned()).unwrap();
        let key = Key::new("k").unwrap();
        let subscriptions = Subscriptions::new(Mutex::new(Some(HashMap::from([(file_name(&key), key.clone())]))));
        let _guard = FlockGuard::take(&directory.file_of(&key)).unwrap().unwrap();
        let mut watcher = watcher(directory, Arc::default(), subscriptions.clone());
        watcher.happened(ReadFlags::CLOSE_WRITE, Some(file_name(&key))).unwrap();
        for attempt in 0..=PROBE_DELAYS.len() {
            assert_eq!(watcher.pending.len(), 1, "after {attempt}");
            watcher.pending.values_mut().for_each(|file| file.due = Moment::default());
            watcher.probe_pending();
        }
        assert!(watcher.pending.is_empty());
        assert!(lock(&subscriptions).as_ref().unwrap().contains_key(&file_name(&key)), "the subscription still exists");
    }
}
