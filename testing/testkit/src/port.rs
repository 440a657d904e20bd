use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Below the ephemeral ports of Linux, which start at 32768.
///
/// A client that repeatedly connects to an ephemeral port of a dead server may connect to itself, and then the
/// server cannot bind the port again.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// The bus of a cluster node listens this far above the port for clients. Redis 6.2 has no option for it.
const BUS: u16 = 10_000;

/// A port of this process until it is dropped, also while nothing listens there.
///
/// Sentinels, replicas and clients still connect to the port of a server that a test has killed. If another test started a server
/// there, they would change that server. So all tests reserve the UDP port of the same number, which no server uses. Clients of a
/// test that has ended may still connect, so a process does not use a port again.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reserved: UdpSocket,
    _bus: Option<UdpSocket>,
}

impl Port {
    /// A port without a listener. A program that reserves nothing may bind it before the caller does, so the caller must retry.
    pub fn free() -> Result<Self> {
        Self::free_among(COUNT, |number| Some(Self { number, _reserved: reserve(number)?, _bus: None }))
    }

    /// A port for a node of a cluster, with that of its bus.
    pub(crate) fn with_bus() -> Result<Self> {
        Self::free_among(COUNT - BUS, |number| {
            Some(Self { number, _reserved: reserve(number)?, _bus: Some(reserve(bus_of(number))?) })
        })
    }

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.number
    }

    fn free_among(count: u16, reserved: impl Fn(u16) -> Option<Self>) -> Result<Self> {
        for _ in 0..100 {
            let mut random = [0; 2];
            getrandom::fill(&mut random).map_err(Error::other)?;
            let number = FIRST + u16::from_le_bytes(random) % count;
            if let Some(port) = reserved(number).filter(|_| is_new(number)) {
                return Ok(port);
            }
        }
        Err(Error::new(ErrorKind::AddrInUse, "no free port among a hundred"))
    }
}

/// Whether this is the first use of the port by this process.
fn is_new(number: u16) -> bool {
    static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    USED.lock().unwrap_or_else(PoisonError::into_inner).insert(number)
}

/// The port of the bus of a node.
pub(crate) const fn bus_of(port: u16) -> u16 {
    port + BUS
}

/// `None` if the port is reserved, or a program listens there.
fn reserve(port: u16) -> Option<UdpSocket> {
    let reserved = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_while_nothing_listens_there() {
        let port = Port::free().unwrap();
        assert!(reserve(port.number()).is_none());
        let node = Port::with_bus().unwrap();
        assert!(reserve(node.number()).is_none() && reserve(bus_of(node.number())).is_none());
    }

    #[test]
    fn a_port_is_not_used_again() {
        let number = Port::free().unwrap().number();
        assert!(!is_new(number));
    }
}
