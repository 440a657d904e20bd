//! What programs rely on without naming it: what may be sent to another thread, that both facades have the same names, and
//! that each of them is explained.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::{
    Backend, Builder, Client, Election, Error, Eviction, Finding, Guard, Guards, Held, HeldAll, HolderId, Holding, Key,
    Leader, Leadership, Lock, LockAll, Loss, LossReason, Observation, Observer, Once, OnceError, OncePerWindow,
    OnceRun, OnceStart, Released, RunError, Semaphore, UnfinishedRun, Unknown, Waiting, WindowDone, blocking,
};
use std::collections::BTreeSet;
use std::time::Duration;

const fn sends<T: Send + Sync + 'static>() {}
const fn is_error<T: Send + Sync + std::error::Error + 'static>() {}

const _: () = {
    sends::<Builder>();
    sends::<Client>();
    sends::<Lock>();
    sends::<Guard>();
    sends::<Held>();
    sends::<Released>();
    sends::<LockAll>();
    sends::<Guards>();
    sends::<HeldAll>();
    sends::<Loss>();
    sends::<(Election, Leadership, Leader, Observer, Observation)>();
    sends::<(blocking::Election, blocking::Leadership, blocking::Observer)>();
    sends::<(OncePerWindow, OnceStart, OnceRun, UnfinishedRun, Once<u32>, WindowDone)>();
    sends::<(blocking::OncePerWindow, blocking::OnceStart, blocking::OnceRun, blocking::UnfinishedRun)>();
    sends::<(Semaphore, blocking::Semaphore)>();
    sends::<Waiting>();
    sends::<Box<dyn Backend>>();
    sends::<(Key, HolderId, Holding, LossReason, Finding, Eviction)>();
    sends::<blocking::Builder>();
    sends::<blocking::Client>();
    sends::<blocking::Lock>();
    sends::<blocking::Guard>();
    sends::<blocking::Held>();
    sends::<blocking::LockAll>();
    sends::<blocking::Guards>();
    sends::<blocking::HeldAll>();
    is_error::<Error>();
    is_error::<Unknown>();
    is_error::<fencelock::Invalid>();
    is_error::<fencelock::Superseded>();
    is_error::<fencelock::backends::ConnectError>();
    is_error::<RunError<u32, std::io::Error>>();
    is_error::<OnceError<u32, std::io::Error>>();
};

/// What a `main` prints that returns it. What contains a body prints the `Debug` of its error.
fn is_printed(error: &(impl std::fmt::Debug + std::fmt::Display)) {
    assert_eq!(format!("{error:?}"), format!("{error:#}"));
}

#[test]
fn a_main_that_returns_an_error_prints_its_text_and_its_cause() {
    let cause = Unknown::new("redis://cache", fencelock::Fault::Timeout, "no answer");
    let (key, invalid) = (Key::new("k").unwrap(), Key::new("").unwrap_err());
    let mut gate = fencelock::FenceGate::default();
    let token = |number| fencelock::FencingToken::new(number).unwrap();
    gate.admit_write(token(2)).unwrap();
    is_printed(&gate.admit_write(token(1)).unwrap_err());
    is_printed(&fencelock::backends::ConnectError::from(cause.clone()));
    let error = Error::unreachable(cause.clone());
    assert!(format!("{error:?}").ends_with(&cause.to_string()));
    is_printed(&cause);
    is_printed(&RunError::<(), Error>::Lock(error.clone()));
    is_printed(&OnceError::<_, Error>::NotCounted { value: (), error: error.clone() });
    is_printed(&RunError::<_, Error>::LostAfter { value: (), key, reason: LossReason::Expired });
    is_printed(&error);
    is_printed(&Error::from(invalid));
}

/// A task can await it on any thread.
fn is_task<T: Future + Send>(task: T) -> T {
    task
}

/// Every future of the library, for values that can be sent themselves.
#[tokio::test]
async fn every_future_can_be_spawned() {
    let client = is_task(Client::connect("memory:every_future_can_be_spawned")).await.unwrap();
    let span = Duration::from_secs(5);
    let guard = is_task(client.lock("k").into_future()).await.unwrap();
    let seen = is_task(client.inspect("k")).await.unwrap().unwrap();
    assert!(is_task(client.lock(guard.key()).try_acquire()).await.unwrap().is_none());
    assert_eq!(is_task(client.list()).await.unwrap().len(), 1);
    is_task(client.renew(String::from("k"), guard.holder(), span)).await.unwrap();
    drop(is_task(guard.lost()));
    drop(is_task(guard.held().lost()));
    drop(is_task(client.evict(&seen)));
    drop(is_task(client.diagnose()));
    let _ = is_task(client.lock("k").resume(guard.holder())).await;
    is_task(guard.release()).await.unwrap();
    let ran = is_task(client.lock("k").run(|_| async { Ok::<_, std::io::Error>(7) })).await;
    assert_eq!(ran.unwrap(), 7);
    let election = client.election("e");
    let leadership = is_task(election.clone().campaign()).await.unwrap();
    assert!(is_task(election.leader()).await.unwrap().is_some());
    assert!(is_task(election.observe().unwrap().next()).await.is_some());
    drop(is_task(leadership.lost()));
    is_task(leadership.resign()).await.unwrap();
    let ran = is_task(election.run_while_leader(|_| async { Ok::<_, std::io::Error>(7) })).await;
    assert_eq!(ran.unwrap(), 7);
    let reader = is_task(is_task(client.lock("r").into_future()).await.unwrap().downgrade()).await.unwrap();
    drop(is_task(client.lock("r").shared().resume(reader.holder())));
    let semaphore = client.semaphore("s", 2);
    let permit = is_task(semaphore.acquire(1)).await.unwrap();
    assert!(is_task(semaphore.try_acquire(2)).await.unwrap().is_none());
    drop(is_task(semaphore.resume(1, permit.holder())));
    assert_eq!(is_task(semaphore.run(1, |_| async { Ok::<_, std::io::Error>(7) })).await.unwrap(), 7);
    drop((reader, permit));
    drop(is_task(client.release("k", seen.first().holder_id().unwrap())));
    let guards = is_task(client.lock_all(["a", "b"]).into_future()).await.unwrap();
    assert!(is_task(client.lock_all(guards.keys()).try_acquire()).await.unwrap().is_none());
    drop(is_task(guards.lost()));
    drop(is_task(guards.held().lost()));
    is_task(guards.release()).await.unwrap();
    let ran = is_task(client.lock_all(["a", "b"]).run(|_| async { Ok::<_, std::io::Error>(7) })).await;
    assert_eq!(ran.unwrap(), 7);
    let once = client.once("o", span);
    let OnceStart::Started(run) = is_task(once.clone().begin()).await.unwrap() else { panic!("nothing has run") };
    drop(is_task(run.lost()));
    is_task(run.give_back()).await;
    let ran = is_task(once.clone().even_if_failed().run(|_| async { Ok::<_, std::io::Error>(7) })).await;
    assert!(matches!(ran, Ok(Once::Done(7))));
    if let Some(done) = is_task(once.done()).await.unwrap() {
        is_task(once.clear(&done)).await.unwrap();
    }
    let slot = is_task(client.slots("s", 2).acquire()).await.unwrap();
    assert!(is_task(client.slots("s", 2).try_acquire()).await.unwrap().is_some());
    drop(is_task(slot.lost()));
    is_task(slot.release()).await.unwrap();
    let ran = is_task(client.slots("s", 2).run(|slot, _| async move { Ok::<_, std::io::Error>(slot) })).await;
    assert!(ran.unwrap() < 2);
    is_task(client.close(span)).await.unwrap();
}

/// A public function as its source shows it. A signature that ends in `;` declares a blocking method, whose body and *Errors* are
/// generated.
struct Function {
    name: String,
    doc: String,
    signature: String,
}

/// A file below `src`.
fn source(file: &str) -> String {
    let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Of these files below `src`.
fn functions(files: &[&str]) -> Vec<Function> {
    let mut found = Vec::new();
    for file in files {
        let text = source(file);
        let (mut doc, mut lines) = (String::new(), text.lines().map(str::trim));
        while let Some(line) = lines.next() {
            if let Some(words) = line.strip_prefix("///") {
                doc.push_str(words);
                doc.push('\n');
            } else if line.starts_with("pub ") && line.contains("fn ") {
                let mut signature = line.to_owned();
                while !signature.ends_with(['{', ';']) {
                    signature.push_str(lines.next().expect("a body"));
                }
                let name = signature.split("fn ").nth(1).expect("a name");
                let name = name.split(['(', '<']).next().expect("a name").to_owned();
                found.push(Function { name, doc: std::mem::take(&mut doc), signature });
            } else if !line.starts_with("#[") && !line.starts_with("$(#[") {
                doc.clear();
            }
        }
    }
    assert!(!found.is_empty(), "the source is read as it is written");
    found
}

/// The setters of all builders, async and blocking.
const SETTINGS: &str = "settings.rs";
/// The files of the async API, and the one of the blocking API that has the same names.
const FILES: [(&[&str], &str); 9] = [
    (&["client.rs"], "blocking/client.rs"),
    (&["lock.rs"], "blocking/lock.rs"),
    (&["guard.rs"], "blocking/guard.rs"),
    (&["lock_all.rs"], "blocking/lock_all.rs"),
    (&["semaphore.rs"], "blocking/semaphore.rs"),
    (&["guards.rs"], "blocking/guards.rs"),
    (&["election.rs"], "blocking/election.rs"),
    (&["once.rs"], "blocking/once.rs"),
    (&["slots.rs"], "blocking/slots.rs"),
];
/// A thread cannot be ended from outside, so its work cannot be dropped. `next` is that of an iterator. `rng` is for schedules of tasks,
/// `wake_at_end` for one that watches many locks, and `descriptors` and `new` for programs that supervise others.
const ASYNC_ONLY: [&str; 6] = ["run_while_leader", "next", "rng", "wake_at_end", "descriptors", "new"];

/// The builders in these files that have the setters of [`SETTINGS`].
fn builders(files: &[&str]) -> BTreeSet<String> {
    let texts = files.iter().map(|file| source(file)).collect::<String>();
    let builders = texts.lines().filter_map(|line| line.trim().strip_prefix("setters!(")?.split_once(" in "));
    builders.map(|(builder, _)| builder.to_owned()).collect()
}

#[test]
fn the_blocking_facade_has_every_name() {
    let names = |files: &[&str]| -> BTreeSet<String> { functions(files).into_iter().map(|found| found.name).collect() };
    for (of_tasks, blocking) in FILES {
        assert_eq!(builders(of_tasks), builders(&[blocking]), "{blocking} has the same setters");
        let missing: Vec<String> = names(of_tasks).difference(&names(&[blocking])).cloned().collect();
        let missing: Vec<String> = missing.into_iter().filter(|name| !ASYNC_ONLY.contains(&name.as_str())).collect();
        assert!(missing.is_empty(), "{blocking}: {missing:?}");
    }
    assert_eq!(FILES.iter().map(|(of_tasks, _)| builders(of_tasks).len()).sum::<usize>(), 6);
}

#[test]
fn every_function_says_what_its_errors_are_and_what_dropping_it_does() {
    let of_tasks: Vec<_> = FILES.iter().flat_map(|(files, _)| functions(files)).chain(functions(&[SETTINGS])).collect();
    let blocking: Vec<_> = FILES.iter().flat_map(|(_, file)| functions(&[file])).collect();
    let is_declared = |function: &Function| function.signature.ends_with(';');
    assert!(of_tasks.len() > 100 && !of_tasks.iter().any(is_declared));
    assert!(blocking.iter().filter(|function| is_declared(function)).count() > 60);
    for (is_async, function) in of_tasks.into_iter().map(|f| (true, f)).chain(blocking.into_iter().map(|f| (false, f)))
    {
        let has_errors = function.signature.contains("-> Result<") && !is_declared(&function);
        let Function { name, doc, signature } = function;
        assert!(!doc.trim().is_empty(), "{name} has no text");
        assert_eq!(doc.contains("# Errors"), has_errors, "{name}: Errors");
        let is_future = is_async && (signature.contains("async fn") || signature.contains("-> impl Future"));
        assert_eq!(doc.contains("# Cancel safety"), is_future, "{name}: Cancel safety");
        assert!(!doc.contains("The same.\n"), "{name}: what is the same should be said");
    }
}
