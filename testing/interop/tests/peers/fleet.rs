//! Processes of all languages concurrently, each adding to one number that only the lock protects.

use crate::environment::{KEY, TestEnvironment, in_time, request, zero};
use fencelock_interop::{KNOWN, Peer, Preset, Process, Servers, Shares};
use std::fs;
use tokio::task::JoinSet;

const TIMES: u32 = 25;
const SIBLINGS: usize = 2;

/// The users of one key: all installed libraries that share locks on these servers, and two fencelock processes.
pub(crate) struct Fleet {
    servers: Servers,
    /// The prefix that the libraries add to a key. Libraries without it use the full name.
    preset: Option<Preset>,
}

impl Fleet {
    /// The libraries without a prefix.
    pub(crate) const fn of(servers: Servers) -> Self {
        Self { servers, preset: None }
    }

    /// The libraries without a prefix, and those with this one.
    pub(crate) const fn with(servers: Servers, preset: Option<Preset>) -> Self {
        Self { servers, preset }
    }

    fn has(&self, peer: &Peer) -> bool {
        let names_alike = peer.preset.is_none() || peer.preset == self.preset;
        peer.servers == self.servers && peer.shares == Shares::Locks && names_alike && peer.command().is_ok()
    }

    /// The processes, and the name of the key for each.
    async fn processes(&self, environment: &TestEnvironment) -> Vec<(Process, String)> {
        let mut processes = Vec::new();
        for peer in KNOWN.iter().filter(|peer| self.has(peer)) {
            let name = if peer.preset.is_some() { KEY.to_owned() } else { environment.wire() };
            processes.push((environment.peer(peer).await, name));
        }
        for _ in 0..SIBLINGS {
            processes.push((environment.sibling().await, KEY.to_owned()));
        }
        processes
    }

    /// The number that was counted, and the expected number.
    async fn count(&self, key: impl Fn(usize, String) -> String) -> (u32, u32) {
        let environment = TestEnvironment::of(self.servers, self.preset).await;
        let dir = tempfile::tempdir().expect("a directory");
        let file = zero(dir.path());
        let processes = self.processes(&environment).await;
        let expected = u32::try_from(processes.len()).expect("a few") * TIMES;
        let mut work = JoinSet::new();
        for (number, (mut member, name)) in processes.into_iter().enumerate() {
            let line = format!("count {} 20000 {file} {TIMES}", key(number, name));
            work.spawn(async move {
                let said = in_time(&member.versions.clone(), request(&mut member, &line)).await;
                assert_eq!(said, "counted", "{}", member.versions);
            });
        }
        work.join_all().await;
        let counted = fs::read_to_string(&file).expect("a count");
        (counted.parse().unwrap_or(0), expected)
    }
}

pub(crate) async fn loses_nothing(fleet: Fleet) {
    let (counted, expected) = fleet.count(|_, name| name).await;
    assert_eq!(counted, expected);
}

/// A control, without which the other tests would prove nothing.
pub(crate) async fn without_a_common_key_increments_are_lost() {
    let (counted, expected) = Fleet::of(Servers::One).count(|number, name| format!("{name}:{number}")).await;
    assert!(counted < expected, "{counted} of {expected}");
}
