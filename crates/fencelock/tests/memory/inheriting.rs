//! A position in the queue of the server belongs to the waiting tasks of a client, not to the task that claimed it.

use crate::common::{Scene, ms, secs};
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
