//! The protected resource: a process that accepts writes with a fencing token, and checks only the token.

use crate::Failure;
use crate::rng_ext::RngExt as _;
use fastrand::Rng;
use fencelock::{FenceGate, FencingToken};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

/// Writes to this key are not checked, which shows what the check prevents.
pub(crate) const UNGUARDED: &str = "control-unguarded";

/// What a client does at the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Write,
    Read,
}

/// The result of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Accepted, with its number in the order of all writes.
    Taken(u64),
    /// Rejected, because a greater token was accepted before.
    Refused(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    gates: HashMap<String, FenceGate>,
    writes: u64,
}

impl Store {
    fn access(&mut self, key: &str, access: AccessKind, token: FencingToken) -> Written {
        let gate = self.gates.entry(key.to_owned()).or_default();
        let admitted = match access {
            AccessKind::Write => gate.admit_write(token),
            AccessKind::Read => gate.admit_read(token),
        };
        if let Err(superseded) = admitted
            && key != UNGUARDED
        {
            return Written::Refused(superseded.greatest.get());
        }
        self.writes += 1;
        Written::Taken(self.writes)
    }
}

/// Serves writers until the process exits. Returns the port.
pub(crate) fn serve() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let store = Arc::new(Mutex::new(Store::default()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            // A disconnected writer needs no handling.
            std::thread::spawn(move || serve_one(&stream, &store));
        }
    });
    Ok(port)
}

fn serve_one(stream: &TcpStream, store: &Mutex<Store>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut to = stream;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let (Some(access), Some(token), Some(key)) = (words.next(), words.next(), words.next()) else {
            return Err("an access, a token and a key".into());
        };
        let access = if access == "read" { AccessKind::Read } else { AccessKind::Write };
        let written = store.lock().unwrap_or_else(PoisonError::into_inner).access(key, access, token.parse()?);
        let (word, number) = match written {
            Written::Taken(seq) => ("taken", seq),
            Written::Refused(greatest) => ("refused", greatest),
        };
        to.write_all(format!("{word} {number}\n").as_bytes())?;
    }
    Ok(())
}

/// The connection of a writer.
#[derive(Debug)]
pub(crate) enum Writer {
    Connected(tokio::io::BufReader<tokio::net::TcpStream>),
    /// In a simulated world: some accesses arrive late.
    Simulated(Arc<Mutex<Store>>, Rng),
}

impl Writer {
    pub(crate) async fn connect(port: u16) -> Result<Self, Failure> {
        let stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self::Connected(tokio::io::BufReader::new(stream)))
    }

    pub(crate) async fn write(&mut self, key: &str, token: FencingToken) -> Result<Written, Failure> {
        self.access(key, AccessKind::Write, token).await
    }

    pub(crate) async fn access(
        &mut self,
        key: &str,
        access: AccessKind,
        token: FencingToken,
    ) -> Result<Written, Failure> {
        let stream = match self {
            Self::Connected(stream) => stream,
            Self::Simulated(store, rng) => {
                tokio::time::sleep(if rng.chance(15_000) { rng.millis(20, 400) } else { rng.millis(0, 3) }).await;
                let written = store.lock().unwrap_or_else(PoisonError::into_inner).access(key, access, token);
                tokio::time::sleep(rng.millis(0, 3)).await;
                return Ok(written);
            }
        };
        let verb = if access == AccessKind::Read { "read" } else { "write" };
        stream.write_all(format!("{verb} {token} {key}\n").as_bytes()).await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end().split_once(' ') {
            Some(("taken", seq)) => Ok(Written::Taken(seq.parse()?)),
            Some(("refused", greatest)) => Ok(Written::Refused(greatest.parse()?)),
            _ => Err(format!("not a reply of the resource: {line:?}").into()),
        }
    }
}
