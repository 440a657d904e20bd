//! A guard that is dropped as its program ends leaves no lock.

use crate::program::{self, url};
use fencelock::{Client, Guard, blocking};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url, servers_or_skip};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const TIMES: usize = 30;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_current_thread_program_leaves_no_lock", || leaves_no_lock("current_thread", 0)),
    ("a_multi_thread_program_leaves_no_lock", || leaves_no_lock("multi_thread", 0)),
    ("a_program_whose_tasks_hang_leaves_no_lock", || leaves_no_lock("tasks_that_hang", 0)),
    ("a_program_that_lets_go_of_its_runtime_leaves_no_lock", || leaves_no_lock("shutdown_background", 0)),
    ("a_program_whose_runtime_is_never_dropped_leaves_no_lock", || leaves_no_lock("static_runtime", 0)),
    ("a_program_whose_guard_outlives_its_runtime_leaves_no_lock", || leaves_no_lock("guard_after_runtime", 0)),
    ("a_program_that_panics_leaves_no_lock", || leaves_no_lock("panics", 101)),
    ("a_program_that_calls_exit_leaves_no_lock", || leaves_no_lock("exits", 3)),
    ("a_program_whose_guard_is_dropped_after_its_end_leaves_no_lock", || leaves_no_lock("destructor", 0)),
    ("a_guard_that_is_dropped_after_the_end_beside_a_late_release_leaves_no_lock", || {
        leaves_no_lock("destructor_beside_a_late_release", 0);
    }),
    ("a_blocking_program_leaves_no_lock", || leaves_no_lock("blocking", 0)),
    ("a_blocking_program_with_a_static_client_leaves_no_lock", || leaves_no_lock("blocking_static", 0)),
    ("a_program_that_calls_exit_keeps_no_lease", || leaves_no_lock("exits_with_kept_lease", 3)),
    ("a_program_whose_runtime_is_never_dropped_keeps_no_lease", || leaves_no_lock("static_runtime_with_kept_lease", 0)),
    ("a_blocking_program_with_a_static_client_keeps_no_lease", || leaves_no_lock("blocking_static_with_kept_lease", 0)),
    ("a_program_that_gives_up_a_wait_leaves_no_waiter", leaves_no_waiter),
    ("a_program_ends_though_its_server_does_not_answer", ends_without_an_answer),
    ("a_program_frees_a_quorum", frees_a_quorum),
];

pub(crate) const PROGRAMS: &[(&str, fn())] = &[
    ("current_thread", current_thread),
    ("multi_thread", multi_thread),
    ("tasks_that_hang", tasks_that_hang),
    ("shutdown_background", shutdown_background),
    ("static_runtime", static_runtime),
    ("guard_after_runtime", guard_after_runtime),
    ("destructor", destructor),
    ("destructor_beside_a_late_release", destructor_beside_a_late_release),
    ("panics", panics),
    ("exits", exits),
    ("blocking", blocking),
    ("blocking_static", blocking_static),
    ("exits_with_kept_lease", exits_with_kept_lease),
    ("static_runtime_with_kept_lease", static_runtime_with_kept_lease),
    ("blocking_static_with_kept_lease", blocking_static_with_kept_lease),
    ("gives_up", gives_up),
    ("is_left_alone", is_left_alone),
];

fn number(server: &RedisServer, words: &[&str]) -> i64 {
    match server.command(words) {
        Reply::Int(number) => number,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn leaves_no_lock(program: &str, code: i32) {
    let Some(server) = redis_or_skip() else { return };
    let is_left = || number(&server, &["EXISTS", "k"]) == 1;
    leaves_nothing(program, &server.url(), code, is_left, || drop(server.command(&["DEL", "k"])));
    assert_eq!(number(&server, &["EXISTS", "fencelock:{k}:fence"]), 1, "it was held");
}

/// Runs a program many times. Its end waits for its releases, but not for long, so on a busy machine something may be left by one
/// that took longer.
fn leaves_nothing(program: &str, url: &str, code: i32, is_left: impl Fn() -> bool, clean_up: impl Fn()) {
    const END: Duration = Duration::from_millis(250);
    // The first one gives the scripts to the server, and is slower.
    program::run(program, url);
    clean_up();
    let mut left = 0;
    for time in 0..TIMES {
        let begun = Instant::now();
        let status = program::run(program, url);
        let took = begun.elapsed();
        assert_eq!(status.code(), Some(code), "time {time}");
        if is_left() {
            assert!(took >= END, "time {time}: something is left after {took:?}");
            clean_up();
            left += 1;
        }
    }
    assert!(left < TIMES, "something is left each time");
}

fn leaves_no_waiter() {
    let Some(server) = redis_or_skip() else { return };
    let client = blocking::Client::connect(&server.url()).unwrap();
    let held = client.lock("k").acquire().unwrap();
    let queue = ["fencelock:{k}:line", "fencelock:{k}:waiters", "fencelock:{k}:alive"];
    let is_left = || number(&server, &["ZCARD", queue[0]]) > 0;
    leaves_nothing("gives_up", &server.url(), 0, is_left, || drop(server.command(&[&["DEL"][..], &queue].concat())));
    held.release().unwrap();
}

fn ends_without_an_answer() {
    let Some(server) = redis_or_skip() else { return };
    let mut program = program::start("is_left_alone", &server.url());
    program::wait_for("held", &mut program);
    server.freeze();
    let status = program.end();
    server.thaw();
    assert!(status.success(), "{status}");
}

fn frees_a_quorum() {
    let Some(servers) = servers_or_skip(3) else { return };
    let url = redlock_url(&servers, "trust_empty=true");
    let is_left = || servers.iter().map(|server| number(server, &["EXISTS", "k"])).sum::<i64>() > 1;
    let clean_up = || servers.iter().for_each(|server| drop(server.command(&["DEL", "k"])));
    leaves_nothing("current_thread", &url, 0, is_left, clean_up);
}

async fn guard() -> Guard {
    guard_of("k").await
}

async fn guard_of(key: &str) -> Guard {
    Client::connect(&url()).await.unwrap().lock(key).await.unwrap()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn current_thread() {
    let _guard = guard().await;
}

#[tokio::main]
async fn multi_thread() {
    let _guard = guard().await;
}

#[tokio::main]
async fn tasks_that_hang() {
    let (held, holds) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let _guard = guard().await;
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    holds.await.unwrap();
}

fn shutdown_background() {
    let runtime = runtime();
    drop(runtime.block_on(guard()));
    runtime.shutdown_background();
}

fn never_dropped() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().unwrap())
}

fn static_runtime() {
    drop(never_dropped().block_on(guard()));
}

fn guard_after_runtime() {
    let runtime = runtime();
    let guard = runtime.block_on(guard());
    drop(runtime);
    drop(guard);
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// A guard that is dropped after the destructor of its client, which is registered later, and so runs earlier.
struct Last(#[expect(dead_code, reason = "only dropped")] Guard);

impl Drop for Last {
    fn drop(&mut self) {
        // The thread that releases waits again.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn destructor() {
    LAST.with(|_| ());
    LAST.set(Some(Last(never_dropped().block_on(guard()))));
}

/// A thread waits meanwhile, because it releases a cancelled claim twice.
fn destructor_beside_a_late_release() {
    LAST.with(|_| ());
    never_dropped().block_on(async {
        let client = Client::connect(&url()).await.unwrap();
        LAST.set(Some(Last(client.lock("k").await.unwrap())));
        pause_server();
        let mut cancelled = client.lock("cancelled").into_future();
        let sent = poll_fn(|context| Poll::Ready(cancelled.as_mut().poll(context).is_pending())).await;
        assert!(sent, "the claim is on its way");
        drop(cancelled);
        // The task of the client sends the release, and waits for its answer, which comes after the end.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    });
}

/// The server answers nobody for a moment.
fn pause_server() {
    let mut server = TcpStream::connect(url().trim_start_matches("redis://")).unwrap();
    server.write_all(b"CLIENT PAUSE 60 ALL\r\n").unwrap();
    let mut answer = [0; 5];
    server.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

#[tokio::main(flavor = "current_thread")]
async fn panics() {
    let _guard = guard().await;
    panic!("on purpose");
}

#[tokio::main(flavor = "current_thread")]
async fn exits() {
    drop(guard().await);
    std::process::exit(3);
}

fn blocking() {
    let client = blocking::Client::connect(&url()).unwrap();
    let _guard = client.lock("k").acquire().unwrap();
}

fn blocking_static() {
    static CLIENT: OnceLock<blocking::Client> = OnceLock::new();
    let client = CLIENT.get_or_init(|| blocking::Client::connect(&url()).unwrap());
    // On another thread, which ends at once.
    std::thread::spawn(|| drop(client.lock("k").acquire().unwrap())).join().unwrap();
}

/// How long a lease is kept for the next task.
const KEPT: Duration = Duration::from_secs(30);

/// Uses a lock, whose lease the client then keeps.
async fn keeps_lease() {
    let client = Client::builder().idle_timeout(KEPT).connect(&url()).await.unwrap();
    // Until the server has the scripts, a lease is kept for 10 ms.
    while client.inspect("k").await.unwrap().is_none() {
        drop(client.lock("k").await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::mem::forget(client);
}

#[tokio::main(flavor = "current_thread")]
async fn exits_with_kept_lease() {
    keeps_lease().await;
    std::process::exit(3);
}

fn static_runtime_with_kept_lease() {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(runtime).block_on(keeps_lease());
}

fn blocking_static_with_kept_lease() {
    static CLIENT: OnceLock<blocking::Client> = OnceLock::new();
    let connect = || blocking::Client::builder().idle_timeout(KEPT).connect(&url()).unwrap();
    let client = CLIENT.get_or_init(connect);
    while client.inspect("k").unwrap().is_none() {
        drop(client.lock("k").acquire().unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn gives_up() {
    let client = Client::connect(&url()).await.unwrap();
    let (sender, seen) = tokio::sync::mpsc::unbounded_channel();
    let waiting = client.lock("k").on_wait(move |_| {
        let _ = sender.send(());
    });
    let mut seen = seen;
    tokio::select! {
        _ = waiting.acquire() => panic!("it is held"),
        _ = seen.recv() => {}
    }
}

#[tokio::main(flavor = "current_thread")]
async fn is_left_alone() {
    let mut held = Vec::new();
    for key in ["a", "b", "c"] {
        held.push(guard_of(key).await);
    }
    program::say_and_wait("held");
}
