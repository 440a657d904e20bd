//! Processes of all languages at once, each adding to one number that only the lock protects.

use crate::stage::{KEY, Stage, ask, in_time, zero};
use fencelock_interop::{KNOWN, Peer, Places, Preset, Process, Shares};
use std::fs;
use tokio::task::JoinSet;

const TIMES: u32 = 25;
const SIBLINGS: usize = 2;

/// Who locks one key: everybody who is installed and shares locks on such servers, and two of ours.
pub(crate) struct Fleet {
    places: Places,
    /// How the libraries that put something before a key, and ours, come to the name on the server. The others are told that name.
    preset: Option<Preset>,
}

impl Fleet {
    /// Those of libraries that lock a key under its own name.
    pub(crate) const fn of(places: Places) -> Self {
        Self { places, preset: None }
    }

    /// Those, and the libraries that put this before it.
    pub(crate) const fn with(places: Places, preset: Option<Preset>) -> Self {
        Self { places, preset }
    }

    fn has(&self, peer: &Peer) -> bool {
        let names_alike = peer.preset.is_none() || peer.preset == self.preset;
        peer.places == self.places && peer.shares == Shares::Locks && names_alike && peer.command().is_ok()
    }

    /// Its processes, and what each of them calls the key.
    async fn crew(&self, stage: &Stage) -> Vec<(Process, String)> {
        let mut crew = Vec::new();
        for peer in KNOWN.iter().filter(|peer| self.has(peer)) {
            let name = if peer.preset.is_some() { KEY.to_owned() } else { stage.wire() };
            crew.push((stage.peer(peer).await, name));
        }
        for _ in 0..SIBLINGS {
            crew.push((stage.sibling().await, KEY.to_owned()));
        }
        crew
    }

    /// How much of what was to be added arrived; and what should have.
    async fn count(&self, key: impl Fn(usize, String) -> String) -> (u32, u32) {
        let stage = Stage::of(self.places, self.preset).await;
        let dir = tempfile::tempdir().expect("a directory");
        let file = zero(dir.path());
        let crew = self.crew(&stage).await;
        let expected = u32::try_from(crew.len()).expect("a few") * TIMES;
        let mut work = JoinSet::new();
        for (number, (mut member, name)) in crew.into_iter().enumerate() {
            let line = format!("count {} 20000 {file} {TIMES}", key(number, name));
            work.spawn(async move {
                let said = in_time(&member.versions.clone(), ask(&mut member, &line)).await;
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

/// Or the above would prove nothing.
pub(crate) async fn without_a_common_key_much_is_lost() {
    let (counted, expected) = Fleet::of(Places::One).count(|number, name| format!("{name}:{number}")).await;
    assert!(counted < expected, "{counted} of {expected}");
}
