//! Registers that are Leases of Kubernetes, in one election with client-go. The API server comes from a kubeconfig or from the account
//! of a pod, which needs `get`, `create` and `update` of `leases`, `list` to list, and `watch` to be woken.

mod config;
mod lease;
mod session;
mod watch;

use crate::{Found, Register, RegisterLocks, WriteReply, web};
use config::{Location, Source};
use fencelock_core::register::{Expect, Record, StoreTiming};
use fencelock_core::{
    Answer, BootClock, BoxFuture, Clock, Connecting, Fault, Finding, Invalid, Key, Listener, Listeners, Scheme, Span,
    Unknown, UrlForm, lock,
};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use lease::{HASHED, LeaseObject};
use serde_json::{Value, json};
use session::Sessions;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use watch::Watches;

/// A request has an answer within this time, or none.
const LIMIT: Duration = Duration::from_secs(10);
/// client-go counts whole seconds, and a holder renews three times in a TTL.
const SHORTEST_TTL: Duration = Duration::from_secs(3);
const ADVISED_TTL: Duration = Duration::from_secs(10);
/// A page of a listing has 500 objects of a few KiB.
const MAX_BODY: usize = 8 << 20;
const JSON: &str = "application/json";
/// Of a listing.
const PAGES: usize = 200;

/// The Leases of a namespace.
#[derive(Debug)]
struct Leases {
    /// For the tasks of its watches.
    this: Weak<Self>,
    sessions: Arc<Sessions>,
    /// The path of the Leases.
    path: String,
    /// This client was let in before.
    accepted: AtomicBool,
    /// The namespace exists.
    found: AtomicBool,
    /// This client may replace what it has created.
    replaces: AtomicBool,
    /// The latest answers. What is being written is not known.
    known: Mutex<HashMap<Key, LeaseObject>>,
    watches: Watches,
    listeners: Listeners,
}

/// So many Leases are known at once. To forget one costs a read.
const KEYS: usize = 1024;

/// Locks on the Leases of this URL. Nothing is sent before the first request.
///
/// # Errors
/// [`Invalid`] if the URL or the kubeconfig is, or if there is none.
pub fn connect(url: &str) -> Result<RegisterLocks, Invalid> {
    let location = Location::parse(url)?;
    let leases = Leases::new(&location, Source::find(&location, &|name| std::env::var_os(name))?)?;
    let timing = StoreTiming { skew: location.skew, ..StoreTiming::default() };
    let locks = RegisterLocks::new(leases).with_timing(timing).with_polls(location.polls);
    Ok(locks.with_ttls(SHORTEST_TTL, ADVISED_TTL))
}

impl Leases {
    fn new(location: &Location, source: Source) -> Result<Arc<Self>, Invalid> {
        let namespace = &location.namespace;
        let sessions = Arc::new(Sessions::new(source, location.address.as_deref(), namespace)?);
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            sessions,
            path: format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            accepted: AtomicBool::new(false),
            found: AtomicBool::new(false),
            replaces: AtomicBool::new(false),
            known: Mutex::default(),
            watches: Watches::default(),
            listeners: Listeners::default(),
        }))
    }

    fn error(&self, fault: Fault, detail: impl Into<String>) -> Unknown {
        Unknown::new(&*self.sessions.name, fault, detail)
    }

    /// Sends a request; again with new credentials if these are refused, or with new authorities if these have not signed the certificate of
    /// the server, because then it was not executed.
    async fn open(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Response<Incoming>, Unknown> {
        let uri = format!("{}{}{path}", self.sessions.server, self.path);
        let mut refused = None;
        loop {
            let session = self.sessions.get(refused).await?;
            let mut request = Request::builder().method(method.clone()).uri(&uri);
            request = request.header("content-type", JSON).header("accept", JSON).header("user-agent", "fencelock");
            if let Some(authorization) = session.authorization.clone() {
                request = request.header("authorization", authorization);
            }
            let request = request.body(body.map(Value::to_string).unwrap_or_default());
            let request = request.map_err(|error| self.error(Fault::Other, error.to_string()))?;
            let response = tokio::time::timeout(LIMIT, session.http.request(request)).await.map_err(|_| self.late())?;
            match response {
                Ok(response) if response.status().as_u16() != 401 || refused.is_some() => return Ok(response),
                // As rustls says it: its error is hidden in those of others.
                Err(error) if refused.is_some() || !root_cause(&error).contains("invalid peer certificate") => {
                    return Err(self.broken(&error));
                }
                _ => {}
            }
            refused = Some(session.opened);
        }
    }

    async fn send(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Reply, Unknown> {
        let response = self.open(method, path, body).await?;
        let (status, date) = (response.status().as_u16(), web::date(response.headers()));
        let body = tokio::time::timeout(LIMIT, Limited::new(response.into_body(), MAX_BODY).collect()).await;
        let body = body.map_err(|_| self.late())?.map_err(|error| self.broken(&*error))?;
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        if status < 300 {
            self.accepted.store(true, Ordering::Relaxed);
        }
        Ok(Reply { status, date, body })
    }

    fn late(&self) -> Unknown {
        self.error(Fault::Timeout, format!("timeout {}", Span(LIMIT)))
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> Unknown {
        self.error(Fault::Unreachable, root_cause(error))
    }

    fn unknown(&self, reply: &Reply) -> Unknown {
        reply.unknown(&self.sessions.name, self.accepted.load(Ordering::Relaxed))
    }

    fn learn(&self, key: &Key, lease: LeaseObject) {
        let mut known = lock(&self.known);
        if known.len() >= KEYS && !known.contains_key(key) {
            known.clear();
        }
        known.insert(key.clone(), lease);
    }

    fn lease(&self, reply: Reply) -> Result<LeaseObject, Unknown> {
        self.found.store(true, Ordering::Relaxed);
        LeaseObject::new(reply.body).ok_or_else(|| self.error(Fault::Unsupported, "the answer is no Lease"))
    }

    /// A read does not tell a namespace that does not exist from a lock that is free. This stores nothing.
    async fn find(&self) -> Result<(), Unknown> {
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"generateName": HASHED}});
        let reply = self.send(&Method::POST, "?dryRun=All", Some(&lease)).await?;
        // It may be allowed to read alone, or a webhook knows no dry run.
        let found = matches!(reply.status, 200..300 | 400 | 403) && !reply.is_ending();
        self.found.store(found, Ordering::Relaxed);
        if found { Ok(()) } else { Err(self.unknown(&reply)) }
    }

    /// Who may create a Lease but not replace it would be granted a lock that cannot be renewed. This stores nothing.
    async fn may_replace(&self, key: &Key, lease: &Value) -> Result<(), Unknown> {
        let reply = self.send(&Method::PUT, &format!("/{}?dryRun=All", lease::name(key)), Some(lease)).await?;
        if reply.status == 403 {
            return Err(self.unknown(&reply));
        }
        self.replaces.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn get(&self, key: &Key) -> Result<Found, Unknown> {
        self.watches.touch(key);
        let reply = self.send(&Method::GET, &format!("/{}", lease::name(key)), None).await?;
        let date = reply.date;
        if reply.is_missing_lease() {
            lock(&self.known).remove(key);
            if !self.found.load(Ordering::Relaxed) {
                self.find().await?;
            }
            return Ok(Found { bytes: None, modified: None, date });
        }
        if reply.status != 200 {
            return Err(self.unknown(&reply));
        }
        let lease = self.lease(reply)?;
        if let Some(why) = lease.refusal() {
            return Err(self.error(Fault::Unsupported, why));
        }
        let found = Found { bytes: Some((lease.version(), lease.content(key))), modified: lease.modified, date };
        self.learn(key, lease);
        Ok(found)
    }

    async fn put(&self, key: &Key, expect: &Expect, bytes: &[u8]) -> Result<WriteReply, Unknown> {
        let no_record = |_| self.error(Fault::Other, "the record to write is not understood");
        let record = Record::from_bytes(bytes, key).map_err(no_record)?;
        let before = lock(&self.known).remove(key).filter(|lease| Some(lease.version()) == *expect);
        let (method, name, before) = match (expect, before) {
            (None, _) => (Method::POST, String::new(), LeaseObject::absent(key)),
            (Some(_), Some(before)) => (Method::PUT, format!("/{}", lease::name(key)), before),
            // What others have added is known no more: it is read first.
            (Some(_), None) => return Ok(WriteReply::Refused { why: String::new() }),
        };
        let object = before.with(key, &record, BootClock.wall_micros());
        if expect.is_none() && !self.replaces.load(Ordering::Relaxed) {
            self.may_replace(key, &object).await?;
        }
        let reply = self.send(&method, &format!("{name}?fieldManager=fencelock"), Some(&object)).await?;
        match reply.status {
            200 | 201 => {
                let (date, lease) = (reply.date, self.lease(reply)?);
                if Record::from_bytes(&lease.content(key), key) != Ok(record) {
                    let why = "what is stored is not what was written: a webhook of the API server changes Leases";
                    return Err(self.error(Fault::Unsupported, why));
                }
                let version = lease.version();
                self.learn(key, lease);
                Ok(WriteReply::Written { version, date })
            }
            // It exists, is another version or another object, or was deleted.
            409 => Ok(WriteReply::Refused { why: reply.message() }),
            _ if expect.is_some() && reply.is_missing_lease() => Ok(WriteReply::Refused { why: reply.message() }),
            _ => Err(self.unknown(&reply)),
        }
    }

    /// The keys that somebody holds, of the Leases that this program has written.
    async fn keys(&self) -> Result<Vec<Key>, Unknown> {
        let (mut keys, mut page) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let mut reply = self.send(&Method::GET, &format!("?limit=500&{}{page}", lease::SELECTOR), None).await?;
            if reply.status != 200 {
                return Err(self.unknown(&reply));
            }
            let items = reply.body["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let held = items.into_iter().filter_map(LeaseObject::new).filter(|lease| !lease.identity().is_empty());
            keys.extend(held.filter_map(|lease| lease.key()));
            match reply.body["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
                None => return Ok(keys),
                // Base64 for URLs.
                Some(next) => page = format!("&continue={next}"),
            }
        }
        Err(self.error(Fault::Unsupported, "there are more than 100,000 Leases in this namespace"))
    }
}

impl Register for Leases {
    fn name(&self) -> String {
        self.sessions.name.clone()
    }

    fn read<'a>(&'a self, key: &'a Key) -> Answer<'a, Found> {
        Box::pin(self.get(key))
    }

    fn write_if<'a>(&'a self, key: &'a Key, expect: &'a Expect, bytes: Vec<u8>) -> Answer<'a, WriteReply> {
        Box::pin(async move { self.put(key, expect, &bytes).await })
    }

    fn pause(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    fn list(&self) -> Answer<'_, Vec<Key>> {
        Box::pin(self.keys())
    }

    fn check(&self) -> Answer<'_, ()> {
        Box::pin(self.find())
    }

    /// Always the same one, because nothing is deleted.
    fn trial_key(&self) -> Option<Key> {
        Key::new("fencelock-doctor").ok()
    }

    fn try_out(&self) -> BoxFuture<'_, Vec<Finding>> {
        Box::pin(async move {
            let watch = self.open(&Method::GET, "?watch=1&timeoutSeconds=1", None).await;
            let is_denied = watch.is_ok_and(|response| response.status().as_u16() == 403);
            let why = "the role lacks it: waiters poll, and a loss is noticed at the next renewal";
            is_denied.then(|| Finding::note("watch", why, "allow it on `leases`")).into_iter().collect()
        })
    }

    fn listen(&self, listener: &Arc<dyn Listener>) {
        self.listeners.add(listener);
    }

    fn watch(&self, key: &Key) -> Result<(), Unknown> {
        let refused = "no watch: the account may not, or watches many Leases already";
        self.watches.start(&self.this, key).then_some(()).ok_or_else(|| self.error(Fault::Unsupported, refused))
    }
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let cause = std::iter::successors(Some(error), |error| error.source()).last();
    cause.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;

/// `kube-lease://`, for `fencelock::register`.
#[derive(Debug)]
pub struct KubeLeases;

impl Scheme for KubeLeases {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("kube-lease:///NAMESPACE", "the Leases of a Kubernetes namespace")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let locks = connect(url)?;
            locks.check().await?;
            Ok(Arc::new(locks) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(connect(url)?) as _) })
    }
}

// An answer of the API server, and what it means if it is an error.

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    /// In microseconds since 1970.
    date: Option<u64>,
    /// An object, or a Status; null if it is neither.
    body: Value,
}

impl Reply {
    /// This Lease does not exist, which is not known of its namespace.
    fn is_missing_lease(&self) -> bool {
        self.status == 404 && self.body["details"]["kind"] == "leases"
    }

    /// It is refused because the namespace is being deleted.
    fn is_ending(&self) -> bool {
        let mut causes = self.body["details"]["causes"].as_array().into_iter().flatten();
        causes.any(|cause| cause["reason"] == "NamespaceTerminating")
    }

    /// The error. `accepted`: the credentials of this client were good before.
    fn unknown(&self, name: &str, accepted: bool) -> Unknown {
        let (fault, advice) = match self.status {
            // They may be replaced under the same name.
            401 if accepted => (Fault::Revoked, ""),
            401 => (Fault::Denied, ": the token or certificate is wrong, or has expired"),
            403 if self.is_ending() => (Fault::Unsupported, ""),
            // The message names the verb.
            403 => (Fault::Denied, ""),
            404 if self.body["details"]["kind"] == "namespaces" => (Fault::Unsupported, ": create the namespace first"),
            404 => (Fault::Unsupported, ": it is no API server with Leases"),
            300..=399 => (Fault::Unsupported, ": redirects are not followed"),
            408 => (Fault::Timeout, ""),
            429 | 500..=599 => (Fault::Busy, ""),
            _ => (Fault::Other, ""),
        };
        Unknown::new(name, fault, self.message() + advice)
    }

    fn message(&self) -> String {
        let message = self.body["message"].as_str().filter(|message| !message.is_empty());
        message.map_or_else(|| format!("HTTP {}", self.status), str::to_owned)
    }
}
