//! One user of a client: acquires, holds, gives up, releases, and is notified of losses.

use crate::network::{Network, at_once, key};
use crate::scenarios::Part;
use fencelock::{Client, Error, Guard, HolderId, LossReason, Moment, Released};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// No lease ends by itself, so every leftover hold is detected.
pub(crate) const TTL: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct User {
    pub(crate) part: Part,
    pub(crate) client: Option<Client>,
    pub(crate) requested: bool,
    pub(crate) acquiring: Option<JoinHandle<Result<Guard, Error>>>,
    pub(crate) guard: Option<Guard>,
    pub(crate) releasing: Option<JoinHandle<Result<Released, Error>>>,
    watcher: Option<JoinHandle<(LossReason, Moment)>>,
    /// The holder id of its hold.
    pub(crate) id: Option<HolderId>,
    pub(crate) let_go: bool,
    pub(crate) lost: Option<(LossReason, Moment)>,
    pub(crate) end: Option<Released>,
}

impl User {
    pub(crate) fn new(part: Part, client: Client) -> Self {
        Self {
            part,
            client: Some(client),
            requested: false,
            acquiring: None,
            guard: None,
            releasing: None,
            watcher: None,
            id: None,
            let_go: false,
            lost: None,
            end: None,
        }
    }

    pub(crate) fn acquire(&mut self, network: &Arc<Network>) {
        self.requested = true;
        let client = self.client.as_ref().expect("it has not left");
        let lock = client.lock(key().as_str()).ttl(TTL);
        let lock = if self.part.reads { lock.shared() } else { lock };
        self.acquiring = Some(spawn(network, lock.acquire()));
    }

    pub(crate) fn cancel(&mut self) {
        if let Some(acquiring) = self.acquiring.take() {
            acquiring.abort();
        }
    }

    pub(crate) fn drop_guard(&mut self) {
        self.let_go = true;
        self.guard = None;
    }

    pub(crate) fn release(&mut self, network: &Arc<Network>) {
        self.let_go = true;
        let guard = self.guard.take().expect("it holds");
        self.releasing = Some(spawn(network, guard.release()));
    }

    pub(crate) fn give_up_release(&mut self) {
        if let Some(releasing) = self.releasing.take() {
            releasing.abort();
        }
    }

    /// It neither waits nor holds.
    pub(crate) fn is_through(&self) -> bool {
        self.acquiring.is_none() && self.guard.is_none() && self.releasing.is_none()
    }

    /// Its client and its watcher go.
    pub(crate) fn go(&mut self) {
        self.client = None;
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }

    /// Collects the results of its tasks. `Err` for an impossible result.
    pub(crate) fn collect(&mut self, network: &Arc<Network>) -> Result<(), String> {
        if self.acquiring.as_ref().is_some_and(JoinHandle::is_finished) {
            match at_once(self.acquiring.take().unwrap()) {
                Ok(Ok(guard)) => self.begin(network, guard),
                Ok(Err(Error::Unreachable { .. })) => {}
                other => return Err(format!("the acquisition ended with {other:?}")),
            }
        }
        if self.releasing.as_ref().is_some_and(JoinHandle::is_finished) {
            match at_once(self.releasing.take().unwrap()) {
                Ok(Ok(released)) => self.end = Some(released),
                Ok(Err(Error::Unreachable { .. })) => {}
                other => return Err(format!("the release ended with {other:?}")),
            }
        }
        if self.watcher.as_ref().is_some_and(JoinHandle::is_finished) {
            self.lost = at_once(self.watcher.take().unwrap()).ok();
        }
        Ok(())
    }

    fn begin(&mut self, network: &Arc<Network>, guard: Guard) {
        self.id = Some(guard.holder());
        let held = guard.held();
        let clock = Arc::clone(network);
        self.watcher = Some(spawn(network, async move { (held.lost().await, clock.now()) }));
        self.guard = Some(guard);
    }
}

fn spawn<T: Send + 'static>(network: &Arc<Network>, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let network = Arc::clone(network);
    tokio::spawn(async move {
        let done = work.await;
        network.activity.notify_one();
        done
    })
}
