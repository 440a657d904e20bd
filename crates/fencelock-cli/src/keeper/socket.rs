//! How a keeper is found, and asked: docs/en/serve.md specifies its lines, and [`Request`] its methods.
//!
//! The name of its socket is abstract: it needs no directory that can be written, is there exactly as long as the keeper, and the kernel
//! gives it to one of several keepers that start at the same time. Everybody in the namespace of the network can connect to it, so both
//! sides ask the kernel who the other is: this user, and for the keeper also a process of its own namespace of processes, which a
//! container with the network of the host is not. From another network namespace a keeper cannot be asked: see `above`.

use super::{Kept, ROLE, Request};
use crate::child_socket::JsonLines;
use crate::exit::{Exit, Failure};
use crate::proc::{Ancestor, arguments_of, every_number, is_stopped, namespace_of, read_lossy, word_after};
use crate::progress::Shown;
use crate::text::process_of;
use fencelock::Owner;
use fencelock::contract::fnv1a;
use rustix::process::{Pid, geteuid};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, timeout};

/// A keeper that says nothing for so long is asked whether it lives.
const BEAT: Duration = Duration::from_secs(1);
/// A keeper that says nothing for so long is stopped. It releases within two seconds, or leaves its locks to the end of their leases.
const ANSWER: Duration = Duration::from_secs(6);
/// The id of a request: a connection has one at a time.
pub(super) const FIRST: u64 = 1;

/// What a keeper says.
#[derive(Debug, Deserialize)]
struct Said {
    /// That of another request answers whether it lives.
    id: Option<u64>,
    result: Option<Value>,
    error: Option<Refusal>,
    /// For the user.
    params: Option<Shown>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    code: i64,
    message: String,
}

/// The address of the keeper of this process on this backend. Its user is a part of it: others can take it, and then it is refused.
pub(super) fn address(backend: &str, process: &str) -> String {
    format!("{}{process}", addresses(backend))
}

/// What the addresses of the keepers of this user on a backend begin with. A backend has any length, and an address 107 bytes.
fn addresses(backend: &str) -> String {
    format!("fencelock/{}/{:016x}/", geteuid().as_raw(), fnv1a(backend))
}

/// The other side of a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) lines: JsonLines,
    pub(super) pid: Option<i32>,
}

impl Peer {
    pub(super) fn of(stream: UnixStream) -> Self {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        Self { lines: JsonLines::new(stream), pid }
    }

    /// The keeper with this address; `None` if there is none.
    ///
    /// # Errors
    /// It is not that of this user, or cannot be reached.
    pub(super) async fn connect(address: &str) -> Result<Option<Self>, Failure> {
        let keeper = match UnixStream::connect(format!("\0{address}")).await {
            Ok(keeper) => keeper,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            // Its queue is full, as that of a stopped process.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(silent(None)),
            Err(error) => {
                let why = format!("cannot reach the process that keeps the locks of this session: {error}");
                return Err(Failure::new(Exit::Unreachable, why));
            }
        };
        match keeper.peer_cred() {
            Ok(peer) if peer.uid() == geteuid().as_raw() => Ok(Some(Self::of(keeper))),
            peer => {
                let who = peer.ok().and_then(|peer| Some(format!("process {} of user {}", peer.pid()?, peer.uid())));
                let who = who.unwrap_or_else(|| "an unknown process".to_owned());
                let why = format!("{who} has taken the address of the keeper of this session (@{address}): end it");
                Err(Failure::new(Exit::Unreachable, why))
            }
        }
    }

    async fn say(&mut self, id: u64, mut message: Value) -> io::Result<()> {
        (message["jsonrpc"], message["id"]) = ("2.0".into(), id.into());
        self.lines.write(&message).await
    }

    /// The answer; `None` if the keeper ends. What became of its locks then, the backend tells.
    ///
    /// # Errors
    /// It refuses, or says nothing.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        show: impl Fn(Shown),
    ) -> Result<Option<T>, Failure> {
        if self.say(FIRST, json!(request)).await.is_err() {
            return Ok(None);
        }
        let mut heard = Instant::now();
        loop {
            match timeout(BEAT, self.lines.read::<Said>()).await {
                Err(_) if heard.elapsed() >= ANSWER || self.pid.is_some_and(is_stopped) => {
                    return Err(silent(self.pid));
                }
                Err(_) => {
                    if self.say(0, json!({ "method": "hello", "params": { "protocol": 1 } })).await.is_err() {
                        return Ok(None);
                    }
                    continue;
                }
                Ok(Ok(Some(Said { params: Some(shown), .. }))) => show(shown),
                Ok(Ok(Some(Said { id: Some(FIRST), error: Some(Refusal { code, message }), .. }))) => {
                    return Err(Failure { exit: u8::try_from(code).map_or(Exit::System, Exit::of_code), message });
                }
                Ok(Ok(Some(Said { id: Some(FIRST), result, .. }))) => {
                    return Ok(result.and_then(|result| serde_json::from_value(result).ok()));
                }
                Ok(Ok(Some(_))) => {}
                Ok(_) => return Ok(None),
            }
            heard = Instant::now();
        }
    }
}

/// The next client of this user, in this namespace of processes.
pub(super) async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Without a descriptor for it.
            tokio::time::sleep(BEAT).await;
            continue;
        };
        let Ok(peer) = stream.peer_cred() else { continue };
        let is_here = peer.pid().is_some_and(|pid| namespace_of(&pid.to_string()) == namespace_of("self"));
        if peer.uid() == geteuid().as_raw() && is_here {
            return stream;
        }
    }
}

pub(super) fn silent(keeper: Option<i32>) -> Failure {
    let keeper = keeper.map(|pid| format!(" ({pid})")).unwrap_or_default();
    let why = "does not answer: it may be stopped, and do what it was asked when it continues";
    Failure::new(Exit::Unreachable, format!("the process that keeps this lock{keeper} {why}"))
}

/// The processes for which this user has keepers on this backend.
pub(super) fn sessions(backend: &str) -> BTreeSet<String> {
    let begin = addresses(backend);
    sockets().iter().filter_map(|name| name.strip_prefix(&begin)).map(str::to_owned).collect()
}

/// The addresses of all keepers of this user.
fn sockets() -> BTreeSet<String> {
    let begin = format!("fencelock/{}/", geteuid().as_raw());
    let all = read_lossy("/proc/net/unix").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'));
    names.filter(|name| name.starts_with(&begin)).map(str::to_owned).collect()
}

/// Asks the keeper that `owner` names; `None` if there is none.
pub(crate) async fn ask<T: DeserializeOwned>(
    backend: &str,
    owner: &Owner,
    request: &Request,
) -> Result<Option<T>, Failure> {
    for session in sessions(backend) {
        let Ok(Some(mut keeper)) = Peer::connect(&address(backend, &session)).await else { continue };
        if keeper.pid.is_some_and(|pid| is_of(owner, pid)) {
            return keeper.ask(request, drop).await;
        }
    }
    Ok(None)
}

/// What all keepers of this user hold on this backend. Those that do not answer are left out.
pub(crate) async fn holds(backend: &str) -> Vec<Kept> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    for session in sessions(backend).into_iter().take_while(|_| begun.elapsed() < ANSWER) {
        let Ok(Some(mut keeper)) = Peer::connect(&address(backend, &session)).await else { continue };
        all.extend(keeper.holds().await.unwrap_or_default());
    }
    all
}

impl Peer {
    /// What a keeper holds; `None` if it does not answer.
    pub(super) async fn holds(&mut self) -> Option<Vec<Kept>> {
        timeout(BEAT, self.ask(&Request::Holds, drop)).await.ok()?.ok()?
    }
}

/// Whether a record names this process of this machine.
pub(crate) fn is_of(owner: &Owner, pid: i32) -> bool {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let this = u32::try_from(pid).ok().and_then(|pid| Owner::new(&host, pid, None).ok());
    this.is_some_and(|this| this.process() == owner.process())
}

/// The keeper on this machine that a record names, and the process that it keeps locks for, as the kernel shows both: a label may
/// contain anything, and another machine may have the same name.
pub(crate) fn named(owner: &Owner) -> Option<(i32, i32)> {
    let keeper = i32::try_from(owner.pid()?).ok().filter(|pid| is_of(owner, *pid) && is_keeper(*pid))?;
    Some((keeper, process_of_keeper(keeper).or_else(|| process_of(owner.label()?))?))
}

fn is_keeper(pid: i32) -> bool {
    arguments_of(pid) == ["fencelock", ROLE]
}

/// The process that a keeper keeps locks for. Its standard input is the descriptor of it, which other users cannot read.
fn process_of_keeper(keeper: i32) -> Option<i32> {
    word_after("Pid:", fdinfo(keeper))?.parse().ok()
}

fn fdinfo(keeper: i32) -> String {
    format!("/proc/{keeper}/fdinfo/0")
}

fn keepers() -> impl Iterator<Item = i32> {
    every_number().into_iter().map(Pid::as_raw_pid).filter(|pid| is_keeper(*pid))
}

/// A keeper of this process, on any backend, that cannot be asked from here.
pub(super) fn unreachable_keeper(process: &Ancestor) -> Option<i32> {
    let end = format!("/{}", process.fingerprint);
    let here = sockets().iter().filter(|name| name.ends_with(&end)).count();
    keepers().filter(|keeper| process_of_keeper(*keeper) == Some(process.pid)).nth(here)
}

/// Whether one of these processes has a keeper, on any backend, that is not among these. A backend may have two names.
pub(super) fn has_other_keeper(processes: &[Ancestor], asked: &[i32]) -> bool {
    let watches = |keeper| processes.iter().any(|process| process_of_keeper(keeper) == Some(process.pid));
    keepers().any(|keeper| !asked.contains(&keeper) && watches(keeper))
}

/// Whether other users have keepers here, whose processes cannot be seen.
pub(super) fn others_have_keepers() -> bool {
    keepers()
        .any(|keeper| std::fs::read(fdinfo(keeper)).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_room_for_the_longest_process() {
        let process = format!("{}:{}:{}", u32::MAX, i32::MAX, u64::MAX);
        assert!(address(&"b".repeat(1000), &process).len() <= 107);
    }

    #[test]
    fn a_label_that_looks_like_that_of_a_keeper_names_none() {
        let this = std::process::id();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let owner = |host: &str| Owner::new(host, this, Some(&format!("while {this} sh"))).unwrap();
        let pid = i32::try_from(this).unwrap();
        assert!(is_of(&owner(&host), pid) && !is_of(&owner("elsewhere"), pid));
        assert_eq!(named(&owner(&host)), None, "this process is no keeper");
    }
}
