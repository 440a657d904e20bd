//! A position in the queue of the server belongs to the waiting tasks of a client, not to the task that claimed it.

use crate::common::{Fate, Scene, Verb, ms, secs};
use fencelock::{Error, Guard, Lock};
use tokio::task::JoinHandle;

/// Lines up, and is known to have done so when this returns.
async fn waits(scene: &Scene, lock: Lock) -> JoinHandle<Result<Guard, Error>> {
    let waiting = tokio::spawn(lock.acquire());
    scene.pass(ms(1)).await;
    waiting
}

async fn in_queue(scene: &Scene) -> u32 {
    scene.holding("k").await.unwrap().waiters
}

/// Another holder has the key. Two tasks of the client wait, the first of them at the server; then another client waits.
struct Queue {
    held: Guard,
    first: JoinHandle<Result<Guard, Error>>,
    second: JoinHandle<Result<Guard, Error>>,
    other: JoinHandle<Result<Guard, Error>>,
}

async fn queue(scene: &Scene, first: Lock, second: Lock) -> Queue {
    let held = scene.neighbour().lock("k").await.unwrap();
    let first = waits(scene, first).await;
    let second = waits(scene, second).await;
    let other = waits(scene, scene.neighbour().lock("k")).await;
    Queue { held, first, second, other }
}

impl Queue {
    /// The key is free now, and the second task of the client has it before the other client.
    async fn second_comes_before_the_other(self, scene: &Scene) -> Guard {
        self.held.release().await.unwrap();
        scene.pass(ms(1)).await;
        assert!(self.second.is_finished() && !self.other.is_finished(), "the position was its client's");
        let guard = self.second.await.unwrap().unwrap();
        drop(self.other);
        guard
    }
}

fn plain(scene: &Scene) -> Lock {
    scene.client.lock("k")
}

#[tokio::test(start_paused = true)]
async fn the_next_task_takes_over_the_position_of_a_cancelled_one() {
    let scene = Scene::new();
    let queue = queue(&scene, plain(&scene), plain(&scene)).await;
    queue.first.abort();
    scene.pass(ms(1)).await;
    assert_eq!(in_queue(&scene).await, 2, "one of each client");
    let guard = queue.second_comes_before_the_other(&scene).await;
    scene.pass(secs(40)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_position_is_handed_down_again_and_again_and_kept_alive() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("k").await.unwrap();
    let mut mine = Vec::new();
    for _ in 0..5 {
        mine.push(waits(&scene, plain(&scene)).await);
    }
    let other = waits(&scene, scene.neighbour().lock("k")).await;
    let last = mine.pop().unwrap();
    for task in mine {
        task.abort();
        scene.pass(ms(2500)).await;
    }
    held.release().await.unwrap();
    scene.pass(ms(1)).await;
    assert!(last.is_finished() && !other.is_finished());
    drop(last.await.unwrap().unwrap());
    assert!(other.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_requests_another_lease_gets_its_own_position() {
    for different in [|lock: Lock| lock.label("payroll"), |lock: Lock| lock.ttl(secs(7))] {
        let scene = Scene::new();
        let queue = queue(&scene, plain(&scene), different(plain(&scene))).await;
        queue.first.abort();
        scene.pass(ms(1)).await;
        assert_eq!(in_queue(&scene).await, 2, "the position was given up, and another taken");
        queue.held.release().await.unwrap();
        scene.pass(ms(1)).await;
        assert!(queue.other.is_finished() && !queue.second.is_finished());
        drop(queue.other.await.unwrap());
        assert!(queue.second.await.unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_that_a_poll_learns_of_first_is_shared_as_well() {
    let scene = Scene::new();
    let held = scene.neighbour().lock("k").await.unwrap();
    let mut tasks = vec![waits(&scene, plain(&scene)).await];
    for _ in 0..3 {
        tasks.push(waits(&scene, plain(&scene)).await);
    }
    // A single task requests one token; a task that takes over its position requests more.
    tasks.remove(0).abort();
    scene.pass(secs(2)).await;
    let polls = scene.net.calls(Verb::Acquire);
    scene.net.always(Verb::Acquire, Fate::Slow(ms(50)));
    while scene.net.calls(Verb::Acquire) == polls {
        scene.pass(ms(1)).await;
    }
    // The message is there before the poll is answered.
    held.release().await.unwrap();
    let mut holders = Vec::new();
    for task in tasks {
        let guard = task.await.unwrap().unwrap();
        holders.push(guard.holder());
        guard.release().await.unwrap();
    }
    assert!(holders.iter().all(|holder| *holder == holders[0]), "one lease for all: {holders:?}");
}
