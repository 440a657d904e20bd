//! Looks up host names without the pool of threads of tokio, which panics at the process limit of the user.

use redis::io::AsyncDNSResolver;
use redis::{ConnectionAddr, ConnectionInfo, RedisFuture, RedisResult};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::{io, thread};
use tokio::sync::{Semaphore, oneshot};

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
