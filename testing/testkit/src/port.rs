use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};

/// Below the ephemeral ports of Linux, which start at 32768.
///
/// A client that repeatedly connects to an ephemeral port of a dead server may connect to itself, and then the
/// server cannot bind the port again.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// The bus of a cluster node listens this far above the port for clients. Redis 6.2 has no option for it.
const BUS: u16 = 10_000;

/// A port without a listener. Another process may bind it before the caller does, so the caller must retry.
pub(crate) fn free() -> Result<u16> {
    free_among(COUNT, is_free)
}

/// A port for a node of a cluster: nothing listens there, nor at the port of its bus.
pub(crate) fn free_with_bus() -> Result<u16> {
    free_among(COUNT - BUS, |port| is_free(port) && is_free(bus_of(port)))
}

/// The port of the bus of a node.
pub(crate) fn bus_of(port: u16) -> u16 {
    port + BUS
}

fn free_among(count: u16, is_free: impl Fn(u16) -> bool) -> Result<u16> {
    for _ in 0..100 {
        let mut dice = [0; 2];
        getrandom::fill(&mut dice).map_err(Error::other)?;
        let port = FIRST + u16::from_le_bytes(dice) % count;
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(Error::new(ErrorKind::AddrInUse, "no free port among a hundred"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
