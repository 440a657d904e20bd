//! The other servers of a list, for a claim at a server without a marker.
//!
//! The server may have been restarted empty; then its quarantine must start, or it would never serve again. Or it may be new, and
//! listed by mistake; then it must not be marked, because it would join an unintended set. The other servers show which case
//! applies.

use crate::scripts::quarantine::MarkerState;
use fencelock_core::{Answer, BootClock, Clock, Fault, Moment, NodeFault, Unknown};
use redis::io::AsyncDNSResolver;
use redis::{ConnectionAddr, ConnectionInfo, RedisFuture, RedisResult};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a result is valid: all nodes of a new list query their peers at the same time.
const FRESH: Duration = Duration::from_millis(500);

/// One of these servers.
pub(crate) trait Peer: std::fmt::Debug + Send + Sync {
    fn node(&self) -> &str;

    /// The timeout of a reply.
    fn limit(&self) -> Duration;

    /// Reads its marker.
    fn inspect(&self) -> Answer<'_, MarkerState>;
}

#[derive(Debug)]
pub(crate) struct Peers {
    servers: Vec<Weak<dyn Peer>>,
    /// A server has confirmed that it belongs to this set, so the set is in use.
    set_up: AtomicBool,
    /// Why the last attempt was refused, and when. One caller queries, and all share the result.
    refused: tokio::sync::Mutex<Option<(Moment, Unknown)>>,
}

impl Peers {
    pub(crate) fn new(servers: Vec<Weak<dyn Peer>>) -> Self {
        Self { servers, set_up: AtomicBool::new(false), refused: tokio::sync::Mutex::default() }
    }

    /// Whether a server without a marker may be marked: another server belongs to this set, or all of them answer and
    /// none has a marker.
    pub(crate) async fn may_mark(&self, unmarked: &str) -> Result<(), Unknown> {
        if self.set_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut refused = self.refused.lock().await;
        if let Some((when, cause)) = &*refused
            && BootClock.now().since(*when) < FRESH
        {
            return Err(renamed(unmarked, cause));
        }
        *refused = None;
        let mut causes = Vec::new();
        for (node, answer) in self.query().await {
            match answer {
                Ok(MarkerState::Unmarked) => {}
                Ok(MarkerState::Serving | MarkerState::Quarantined(_) | MarkerState::Restarted) => {
                    self.set_up.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(cause) => causes.push((node, cause.is_permanent() && cause.is_refusal())),
            }
        }
        let Some(cause) = refusal(unmarked, &causes) else { return Ok(()) };
        *refused = Some((BootClock.now(), cause.clone()));
        Err(cause)
    }

    async fn query(&self) -> Vec<(String, Result<MarkerState, Unknown>)> {
        let mut queries = JoinSet::new();
        for server in self.servers.iter().filter_map(Weak::upgrade) {
            queries.spawn(async move {
                // The waiting claim has a timeout too.
                let answer = timeout(server.limit() / 2, server.inspect()).await;
                let silent = || Unknown::new(server.node(), Fault::Timeout, "");
                (server.node().to_owned(), answer.unwrap_or_else(|_| Err(silent())))
            });
        }
        queries.join_all().await
    }
}

/// Why `unmarked` must not be marked; for the others, whether they belong to another set.
fn refusal(unmarked: &str, others: &[(String, bool)]) -> Option<Unknown> {
    let named = |of_another_set: bool| {
        let names =
            others.iter().filter(|(_, of_another)| *of_another == of_another_set).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(" and ")
    };
    let (of_others, silent) = (named(true), named(false));
    if !of_others.is_empty() {
        let why = format!("it has no marker, and {of_others} belongs to another set, so nothing was written");
        return Some(Unknown::new(unmarked, Fault::Misconfigured, why));
    }
    (!silent.is_empty()).then(|| {
        let why = format!(
            "it may have lost its locks: restarted, promoted, flushed or new. It is not marked before {silent} answers or another \
             node says that it belongs to this set; if the list is right, `fencelock init`"
        );
        Unknown::new(unmarked, Fault::Quarantined, why)
    })
}

fn renamed(node: &str, cause: &Unknown) -> Unknown {
    Unknown::of_nodes(cause.nodes().iter().map(|of| NodeFault::new(node, of.fault, &*of.detail)).collect())
}

// Looks up host names without the pool of threads of tokio, which panics at the process limit of the user.

/// The number of threads that may look up names at the same time: a name server that does not answer keeps each for some seconds.
static THREADS: Semaphore = Semaphore::const_new(64);

/// The resolver of every connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolver;

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let addresses = resolve(host, port).await?;
            Ok(Box::new(addresses.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// The addresses of a host, at least one. An address needs no thread.
pub(crate) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let permit = THREADS.acquire().await.map_err(io::Error::other)?;
    let (answer, answered) = oneshot::channel();
    let host = host.to_owned();
    let look_up = move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        drop(permit);
        // The receiver is gone if the connection attempt has ended.
        let _ = answer.send(addresses);
    };
    let refused = |error| io::Error::other(format!("no thread to look up the name of the host: {error}"));
    thread::Builder::new().name("fencelock-names".into()).spawn(look_up).map_err(refused)?;
    let addresses = answered.await.map_err(io::Error::other)??;
    if addresses.is_empty() {
        return Err(io::Error::other("the name of the host has no address"));
    }
    Ok(addresses)
}

/// The same server by each of its addresses, where the driver would look up the name itself. With TLS, the certificate is checked
/// against the name, so it stays.
pub(crate) async fn resolved(info: &ConnectionInfo) -> RedisResult<Vec<ConnectionInfo>> {
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return Ok(vec![info.clone()]) };
    let at = |address: SocketAddr| info.clone().set_addr(ConnectionAddr::Tcp(address.ip().to_string(), address.port()));
    Ok(resolve(host, *port).await?.into_iter().map(at).collect())
}

#[cfg(test)]
mod names_tests {
    use super::*;

    #[tokio::test]
    async fn a_name_has_its_addresses_and_an_address_is_its_own() {
        let local = resolve("localhost", 7).await.unwrap();
        assert!(!local.is_empty() && local.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
        assert_eq!(resolve("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(resolve("no-such-name.invalid", 7).await.is_err());
    }
}
