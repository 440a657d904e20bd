//! Clients that wait in the queue of a key while its slot moves.

use crate::Failure;
use crate::connect::connect;
use crate::recorder::{micros, now};
use fencelock::blocking::{Client, Guard};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The number of waiters, each with a connection of its own.
const WAITERS: usize = 4;
/// Much longer than every fault.
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// The clients.
#[derive(Debug)]
pub(crate) struct QueueProbe {
    clients: Vec<Client>,
    ttl: Duration,
}

/// Clients that wait in the queue, and the holder that they wait for.
#[derive(Debug)]
pub(crate) struct ProbedQueue {
    key: String,
    held: Guard,
    order: Arc<Mutex<Vec<usize>>>,
    waiters: Vec<JoinHandle<Result<(), fencelock::Error>>>,
}

impl QueueProbe {
    pub(crate) fn connect(url: &str, ttl: Duration) -> Result<Self, Failure> {
        Ok(Self { clients: (0..=WAITERS).map(|_| connect(url)).collect::<Result<_, _>>()?, ttl })
    }

    /// Queues the clients for a key in the slot of another one, in a known order.
    pub(crate) fn fill(&self, beside: &str) -> Result<ProbedQueue, Failure> {
        let key = format!("{{{beside}}}:line");
        let holder = &self.clients[WAITERS];
        let held = holder.lock(&key).ttl(self.ttl).wait(TIMEOUT).acquire()?;
        let mut queue = ProbedQueue { key, held, order: Arc::default(), waiters: Vec::new() };
        for (number, client) in self.clients[..WAITERS].iter().enumerate() {
            let lock = client.lock(&queue.key).ttl(self.ttl).wait(TIMEOUT);
            let order = Arc::clone(&queue.order);
            queue.waiters.push(std::thread::spawn(move || {
                let guard = lock.acquire()?;
                order.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                guard.release().map(drop)
            }));
            queue.await_length(holder)?;
        }
        Ok(queue)
    }
}

impl ProbedQueue {
    /// Waits until the server reports all waiters.
    fn await_length(&self, client: &Client) -> Result<(), Failure> {
        let until = now() + micros(TIMEOUT);
        loop {
            let waiters = client.inspect(&self.key)?.map_or(0, |holding| holding.waiters);
            if usize::try_from(waiters) == Ok(self.waiters.len()) {
                return Ok(());
            }
            if now() > until {
                return Err(format!("{waiters} of {} waiters are in the queue", self.waiters.len()).into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Releases the lock: all waiters must be served, in their order.
    pub(crate) fn serve(self) -> Result<(), Failure> {
        // The hold may have been lost; then the first waiter has the lock.
        let _ = self.held.release();
        for waiter in self.waiters {
            waiter.join().map_err(|_| "a waiter panicked")??;
        }
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.iter().copied().eq(0..WAITERS) {
            return Ok(());
        }
        Err(format!("the waiters of {} were served in the order {order:?}", self.key).into())
    }
}
