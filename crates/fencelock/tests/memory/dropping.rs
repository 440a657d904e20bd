//! A dropped guard releases its lock, from any thread and in any way.

use crate::common::{Fate, Faulty, Scene, Verb, eventually, ms, secs};
use fencelock::backends::Memory;
use fencelock::{Client, Guard};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn a_hundred_guards_together_with_the_last_handle_of_their_client() {
    let scene = Scene::new();
    let client = scene.neighbour();
    let mut guards = Vec::new();
    for i in 0..100 {
        guards.push(client.lock(format!("k{i}")).await.unwrap());
    }
    drop((client, guards));
    scene.pass(ms(5)).await;
    assert_eq!(scene.neighbour().list().await.unwrap(), []);
}

#[tokio::test]
async fn on_a_plain_thread_without_a_runtime() {
    let client = Client::connect("memory:dropped on a plain thread").await.unwrap();
    let guard = client.lock("k").await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    eventually("free", async || client.inspect("k").await.unwrap().is_none()).await;
}

/// A guard whose client lives on a runtime of its own.
fn guard_on_another_runtime(memory: &Arc<Memory>) -> (tokio::runtime::Runtime, Client, Guard) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let memory = Arc::clone(memory) as _;
    let (client, guard) = runtime.block_on(async {
        let client = Client::builder().backend(memory).unwrap();
        let guard = client.lock("k").await.unwrap();
        (client, guard)
    });
    (runtime, client, guard)
}

fn until_free(memory: Arc<Memory>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder().backend(memory).unwrap();
        eventually("free", async || client.inspect("k").await.unwrap().is_none()).await;
    });
}

#[test]
fn just_before_its_runtime_is_shut_down() {
    for _ in 0..50 {
        let memory = Arc::new(Memory::new());
        let (runtime, client, guard) = guard_on_another_runtime(&memory);
        drop((guard, client));
        runtime.shutdown_background();
        until_free(memory);
    }
}

/// One after the other would take a quarter of a second each.
#[test]
fn many_guards_dropped_after_their_runtime_wait_only_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (net, guards) = runtime.block_on(async {
        let clock = fencelock::backends::TokioClock::starting_now();
        let net = Faulty::over(Arc::new(Memory::new()), clock);
        let client = Client::builder().backend(Arc::clone(&net) as _).unwrap();
        let mut guards = Vec::new();
        for i in 0..400 {
            guards.push(client.lock(format!("k{i}")).await.unwrap());
        }
        (net, guards)
    });
    drop(runtime);
    net.always(Verb::Release, Fate::Hang);
    let (dropped, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(guards);
        dropped.send(()).unwrap();
    });
    assert!(done.recv_timeout(secs(60)).is_ok(), "it waits for each of them");
    assert!(net.calls(Verb::Release) > 0, "they were sent");
}
