//! What may be sent to another thread and shared: a change here breaks programs that spawn tasks.
#![allow(missing_docs)]

use fencelock::{
    Backend, Builder, Client, Error, Eviction, Finding, Guard, Held, HolderId, Holding, Key, Lock, LossReason,
    Released, RunError, Unknown, Waiting, blocking,
};
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
    sends::<Waiting>();
    sends::<Box<dyn Backend>>();
    sends::<(Key, HolderId, Holding, LossReason, Finding, Eviction)>();
    sends::<blocking::Builder>();
    sends::<blocking::Client>();
    sends::<blocking::Lock>();
    sends::<blocking::Guard>();
    sends::<blocking::Held>();
    is_error::<Error>();
    is_error::<Unknown>();
    is_error::<fencelock::Invalid>();
    is_error::<fencelock::Superseded>();
    is_error::<fencelock::backends::ConnectError>();
    is_error::<RunError<u32, std::io::Error>>();
};

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
    drop(is_task(client.examine()));
    let _ = is_task(client.lock("k").resume(guard.holder())).await;
    assert_eq!(is_task(guard.release()).await.unwrap(), Released::Released);
    let ran = is_task(client.lock("k").run(|_| async { Ok::<_, std::io::Error>(7) })).await;
    assert_eq!(ran.unwrap(), 7);
    drop(is_task(client.release("k", seen.occupant.holder_id().unwrap())));
    is_task(client.close(span)).await.unwrap();
}
