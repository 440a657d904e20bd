//! The facade without async has the same settings and the same ends.

use fencelock::backends::{BootClock, Memory};
use fencelock::blocking::{Builder, Client, OnceStart};
use fencelock::{Backend, Clock, Eviction, Loss, LossReason, Mode, Released, RunError};
use std::sync::Arc;
use std::time::Duration;

const GENEROUS: Duration = Duration::from_secs(60);

fn backend() -> Arc<dyn Backend> {
    Arc::new(Memory::new())
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = BootClock.now();
    while !is_so() {
        assert!(BootClock.now().since(begun) < GENEROUS, "{what}");
        std::thread::yield_now();
    }
}

/// Ends the hold as another program would.
fn evict(client: &Client, key: &str) {
    let seen = client.inspect(key).unwrap().unwrap();
    assert_eq!(client.evict(&seen).unwrap(), Eviction::Evicted);
}

/// The number of waiting threads that the backend reports.
fn waiters_at_the_backend(builder: Builder) -> u32 {
    let client = builder.backend(backend()).unwrap();
    let held = client.lock("k").acquire().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| client.lock("k").acquire().unwrap().release().unwrap());
        }
        until("both wait", || client.waiting("k") == 2);
        until("the backend knows", || client.inspect("k").unwrap().unwrap().waiters > 0);
        let waiters = client.inspect("k").unwrap().unwrap().waiters;
        held.release().unwrap();
        waiters
    })
}

#[test]
fn the_builder_sets_what_it_says() {
    assert_eq!(waiters_at_the_backend(Client::builder()), 1, "threads that share a lease are one waiter");
    let apart = || {
        let builder = Client::builder().sharing(false).batch(1, Duration::ZERO);
        waiters_at_the_backend(
            builder.yield_interval(Duration::from_secs(1), Duration::ZERO).idle_timeout(Duration::ZERO),
        )
    };
    until("each claims for itself", || apart() == 2);
    let absurd = Client::builder().idle_timeout(Duration::from_secs(90_000)).backend(backend());
    assert!(absurd.unwrap_err().is_config(), "settings out of range");
}

#[test]
fn a_run_returns_what_the_body_returned() {
    let client = Client::builder().backend(backend()).unwrap();
    assert_eq!(client.lock("k").run(|held| Ok::<_, ()>(held.is_held())), Ok(true));
    let failed: Result<(), _> = client.lock("k").run(|_| Err("no paper"));
    assert_eq!(failed, Err(RunError::Body("no paper")));
    assert!(client.inspect("k").unwrap().is_none());
    let ran = client.lock("k").run(|_| {
        evict(&client, "k");
        Ok::<_, ()>(7)
    });
    let Err(RunError::LostAfter { value: 7, reason, .. }) = ran else { panic!("{ran:?}") };
    assert_eq!(reason, LossReason::Deleted);
    let held = client.lock("k").acquire().unwrap();
    let busy: Result<(), RunError<_, ()>> = client.lock("k").wait(Duration::ZERO).run(|_| panic!("not called"));
    assert!(busy.unwrap_err().is_busy());
    drop(held);
}

#[test]
fn a_thread_can_wait_for_the_loss() {
    let client = Client::builder().backend(backend()).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    assert_eq!(guard.lost_within(Duration::from_millis(1)), None);
    std::thread::scope(|scope| {
        let lost = scope.spawn(|| guard.lost());
        evict(&client, "k");
        assert_eq!(lost.join().unwrap(), LossReason::Deleted);
    });
    assert!(guard.check().unwrap_err().is_lost());
    assert!(guard.release().unwrap_err().is_lost());
}

#[test]
fn a_loss_calls_back_once_and_a_release_never() {
    let client = Client::builder().backend(backend()).unwrap();
    let (sender, losses) = std::sync::mpsc::channel();
    let watch = || {
        let sender = sender.clone();
        move |loss: Loss| sender.send((loss.key.to_string(), loss.reason)).unwrap()
    };
    let (released, lost) = (client.lock("a").acquire().unwrap(), client.lock("b").acquire().unwrap());
    let several = client.lock_all(["c", "d"]).acquire().unwrap();
    released.on_lost(watch());
    lost.on_lost(watch());
    several.on_lost(watch());
    released.release().unwrap();
    for key in ["b", "d"] {
        evict(&client, key);
        assert_eq!(losses.recv_timeout(GENEROUS).unwrap(), (key.to_owned(), LossReason::Deleted));
    }
    lost.on_lost(watch());
    assert_eq!(losses.recv_timeout(GENEROUS).unwrap().0, "b", "also if it was lost before");
    drop((lost, several, client, watch));
    drop(sender);
    assert!(losses.recv_timeout(GENEROUS).is_err(), "no callback is left");
}

#[test]
fn a_view_outlives_its_client_and_holds_nothing() {
    let client = Client::builder().backend(backend()).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    let held = guard.held();
    guard.release().unwrap();
    drop(client);
    assert!(!held.is_held() && held.check().is_ok());
    assert_eq!(held.lost_within(GENEROUS), None, "at once: what was released is not lost");
}

#[test]
fn a_hold_travels_between_clients() {
    let (a, b) = (Client::connect("memory:travels").unwrap(), Client::connect("memory:travels").unwrap());
    let holder = a.lock("k").acquire().unwrap().into_holder();
    b.renew("k", holder, GENEROUS).unwrap();
    let guard = b.lock("k").resume(holder).unwrap();
    guard.release().unwrap();
    assert!(matches!(a.release("k", holder).unwrap(), Released::AlreadyLost { .. }));
    b.close(GENEROUS).unwrap();
}

#[test]
fn several_keys_are_locked_together() {
    let client = Client::builder().backend(backend()).unwrap();
    let guards = client.lock_all(["b", "a"]).acquire().unwrap();
    assert_eq!(guards.keys(), ["b", "a"]);
    assert!(client.lock_all(["c", "a"]).try_acquire().unwrap().is_none());
    let held = guards.held();
    assert_eq!(held.parts()[1].fencing_token(), guards.fencing_tokens()[1]);
    assert_eq!(held.lost_within(Duration::ZERO), None);
    evict(&client, "a");
    assert_eq!(guards.lost().key, "a");
    assert!(held.check().is_err() && guards.release().unwrap_err().is_lost());
    let ran = client.lock_all(["a", "b"]).run(|held| held.check().map(|()| held.keys().len()));
    assert_eq!(ran.unwrap(), 2);
    let alone = client.lock_all(["a", "b"]).acquire().unwrap().into_guards();
    assert_eq!(alone.len(), 2);
}

#[test]
fn threads_read_together_and_take_permits() {
    let client = Client::builder().backend(backend()).unwrap();
    let writer = client.lock("k").acquire().unwrap();
    let held = writer.held();
    let reader = writer.downgrade().unwrap();
    assert!(!held.is_held() && reader.is_held());
    let other = client.lock("k").shared().acquire().unwrap();
    assert_eq!((reader.mode(), other.held().mode()), (Mode::Shared, Mode::Shared));
    assert!(client.lock("k").try_acquire().unwrap().is_none());
    let keys = client.lock_all(["k", "l"]).shared().acquire().unwrap();
    drop((reader, other, keys));
    let semaphore = client.semaphore("s", 3).ttl(GENEROUS).wait(Duration::from_secs(1)).label("threads");
    let two = semaphore.acquire(2).unwrap();
    assert_eq!(two.mode(), Mode::permits(2, 3).unwrap());
    assert!(semaphore.try_acquire(2).unwrap().is_none());
    assert!(semaphore.run(1, |held| Ok::<_, fencelock::Error>(held.is_held())).unwrap());
    let resumed = semaphore.resume(2, two.into_holder()).unwrap();
    resumed.release().unwrap();
    let held = semaphore.acquire(3).unwrap();
    assert_eq!(client.semaphore("s", 5).resize().unwrap().before, 3);
    drop(held);
    assert!(semaphore.acquire(4).unwrap_err().is_config());
}

#[test]
fn a_slot_is_resumed_by_its_number_and_its_holder() {
    let client = Client::builder().backend(backend()).unwrap();
    let slot = client.slots("pool", 1).acquire().unwrap();
    let (number, token) = (slot.slot(), slot.fencing_token());
    let slot = client.slots("pool", 1).resume(number, slot.into_holder()).unwrap();
    assert_eq!((slot.slot(), slot.key().as_str(), slot.fencing_token()), (0, "pool#0", token));
    let guard = slot.into_guard().downgrade().unwrap();
    assert_eq!((guard.key().as_str(), guard.mode()), ("pool#0", Mode::Shared));
}

#[test]
fn a_released_leadership_has_resigned() {
    let client = Client::builder().backend(backend()).unwrap();
    let leadership = client.election("e").campaign().unwrap();
    assert!(leadership.is_leader() && leadership.name() == "e");
    assert_eq!(client.election("e").leader().unwrap().unwrap().term, Some(leadership.term()));
    leadership.release().unwrap();
    assert_eq!(client.election("e").leader().unwrap(), None);
}

#[test]
fn a_run_counts_after_its_success_only() {
    let client = Client::builder().backend(backend()).unwrap();
    let work = client.once("o", Duration::from_secs(86_400));
    let begin = || match work.clone().begin().unwrap() {
        OnceStart::Started(run) => run,
        OnceStart::AlreadyDone(done) => panic!("{done}"),
    };
    begin().release().unwrap();
    begin().give_back();
    drop(begin().into_guard());
    let (guard, rest) = begin().into_parts();
    rest.succeed().unwrap();
    assert_eq!(work.done().unwrap().unwrap().fencing_token(), guard.fencing_token());
    guard.release().unwrap();
}

/// The loss that `lost_within` would report, if it returns before a generous limit.
fn end_of(wait: impl FnOnce(Duration) -> bool + Send + 'static) -> bool {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(wait(Duration::MAX)));
    receiver.recv_timeout(GENEROUS).expect("it returns")
}

#[test]
fn waiting_for_a_loss_ends_with_the_release() {
    let client = Client::builder().backend(backend()).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    let held = guard.held();
    let waiting = std::thread::spawn(move || end_of(move |within| held.lost_within(within).is_none()));
    guard.release().unwrap();
    assert!(waiting.join().unwrap(), "it was not lost");

    let guards = client.lock_all(["a", "b"]).acquire().unwrap();
    let held = guards.held();
    let waiting = std::thread::spawn(move || end_of(move |within| held.lost_within(within).is_none()));
    guards.release().unwrap();
    assert!(waiting.join().unwrap(), "none was lost");
}

#[test]
fn a_callback_that_calls_the_client_is_refused_and_blocks_nothing() {
    let client = Client::builder().backend(backend()).unwrap();
    let held = client.lock("k").acquire().unwrap();
    let (sender, refusals) = std::sync::mpsc::channel();
    let (again, view) = (client.clone(), held.held());
    let waiting = client.lock("k").on_wait(move |_| {
        let waits = std::panic::AssertUnwindSafe(|| view.lost_within(GENEROUS));
        let _ = sender.send((again.inspect("k").unwrap_err(), std::panic::catch_unwind(waits).is_err()));
    });
    let waiting = std::thread::spawn(move || waiting.acquire());
    let (error, panicked) = refusals.recv_timeout(GENEROUS).unwrap();
    assert!(error.is_config() && error.to_string().contains("callback"), "{error}");
    assert!(panicked, "it returns no error");
    held.release().unwrap();
    assert!(waiting.join().unwrap().unwrap().is_held());
}

#[test]
fn a_panic_of_a_callback_continues_on_the_calling_thread() {
    let client = Client::builder().backend(backend()).unwrap();
    let held = client.lock("k").acquire().unwrap();
    let waiting = client.lock("k").on_wait(|_| panic!("on purpose"));
    let panic = std::thread::spawn(move || waiting.acquire()).join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(held.is_held() && client.waiting("k") == 0);
    held.release().unwrap();
    assert!(client.lock("k").try_acquire().unwrap().is_some(), "the client still works");
}

#[tokio::test]
async fn it_works_inside_an_async_runtime_and_the_last_guard_frees_its_lock() {
    let memory = backend();
    let client = Client::builder().backend(Arc::clone(&memory)).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    assert!(client.lock("k").try_acquire().unwrap().is_none());
    drop(client);
    drop(guard);
    assert!(Client::builder().backend(memory).unwrap().inspect("k").unwrap().is_none());
}

#[test]
fn a_lock_is_renewed_while_its_owner_computes() {
    let memory = Memory::with_leases(Arc::new(BootClock));
    let client = Client::builder().backend(Arc::new(memory)).unwrap();
    let guard = client.lock("k").ttl(Duration::from_secs(4)).acquire().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(guard.is_held());
    guard.release().unwrap();
}
