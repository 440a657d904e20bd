use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that Linux gives to outgoing connections, from 32768 on.
///
/// A client that keeps connecting to a dead server's port from that range ends up connected to itself, and then the
/// server cannot come back to its port.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port on which nobody listens now. By the time it is used somebody may: whoever uses it must try again.
pub(crate) fn free() -> Result<u16> {
    for _ in 0..100 {
        let mut dice = [0; 2];
        getrandom::fill(&mut dice).map_err(Error::other)?;
        let port = FIRST + u16::from_le_bytes(dice) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::new(ErrorKind::AddrInUse, "no free port among a hundred"))
}
