//! Watches: who holds a Lease is told within milliseconds. They are hints, and each needs a connection.

use super::{LIMIT, Leases};
use fencelock_core::{Event, Key, lock};
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

/// A watch ends this long after the last use of its key, and each of its requests does.
const LIFE: Duration = Duration::from_secs(300);
/// Before a watch that has ended begins again.
const PAUSE: Duration = Duration::from_secs(2);
/// A client watches so many keys at once. Who waits for others polls.
const MOST: usize = 16;
/// An event is one line.
const MAX_LINE: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The keys that are watched.
    watched: Mutex<HashMap<Key, Watch>>,
    /// The account may not watch.
    denied: AtomicBool,
}

#[derive(Debug)]
struct Watch {
    used: Instant,
    task: AbortHandle,
}

impl Watches {
    /// The key is used.
    pub(super) fn touch(&self, key: &Key) {
        lock(&self.watched).entry(key.clone()).and_modify(|watch| watch.used = Instant::now());
    }

    /// Watches this key for some minutes. Returns whether it does.
    pub(super) fn start(&self, leases: &Weak<Leases>, key: &Key) -> bool {
        let mut watched = lock(&self.watched);
        // It ends with the runtime where it began.
        watched.retain(|_, watch| !watch.task.is_finished());
        if self.denied.load(Ordering::Relaxed) || (watched.len() >= MOST && !watched.contains_key(key)) {
            return false;
        }
        let used = Instant::now();
        // The task waits for the guard before it asks whether it goes on.
        let begin = || Watch { used, task: tokio::spawn(follow(leases.clone(), key.clone())).abort_handle() };
        watched.entry(key.clone()).or_insert_with(begin).used = used;
        true
    }

    /// Whether the watch goes on; if not, it is forgotten.
    fn goes_on(&self, key: &Key) -> bool {
        let mut watched = lock(&self.watched);
        let is_used = watched.get(key).is_some_and(|watch| watch.used.elapsed() < LIFE);
        let goes_on = is_used && !self.denied.load(Ordering::Relaxed);
        if !goes_on {
            watched.remove(key);
        }
        goes_on
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        lock(&self.watched).values().for_each(|watch| watch.task.abort());
    }
}

async fn follow(leases: Weak<Leases>, key: Key) {
    let selector = format!("fieldSelector=metadata.name%3D{}", super::lease::name(&key));
    let path = format!("?watch=1&timeoutSeconds={}&{selector}", LIFE.as_secs());
    while let Some(this) = leases.upgrade().filter(|this| this.watches.goes_on(&key)) {
        // It begins with what is there now, so nothing is missed in between.
        let response = this.open(&Method::GET, &path, None).await;
        let status = response.as_ref().map_or(0, |response| response.status().as_u16());
        if status == 403 {
            this.watches.denied.store(true, Ordering::Relaxed);
        }
        drop(this);
        if let Some(response) = response.ok().filter(|_| status == 200) {
            listen(&leases, &key, response.into_body()).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen(leases: &Weak<Leases>, key: &Key, body: Incoming) {
    let bytes = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let mut lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(MAX_LINE));
    while let Ok(Some(Ok(line))) = tokio::time::timeout(LIFE + LIMIT, lines.next()).await {
        let Some(leases) = leases.upgrade() else { return };
        tell(&leases, key, &line);
    }
}

/// An event. Only one that shows another holder than this client knows is news: renewals and own writes are not.
fn tell(leases: &Leases, key: &Key, line: &str) {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let identity = match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => event["object"]["spec"]["holderIdentity"].as_str().unwrap_or_default(),
        Some("DELETED") => "",
        _ => return,
    };
    let is_news = lock(&leases.known).get(key).is_some_and(|lease| lease.identity() != identity);
    if is_news {
        leases.listeners.send(&Event::Changed { key: key.clone() });
    }
}
