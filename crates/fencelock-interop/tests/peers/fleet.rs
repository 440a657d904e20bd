//! Processes of all languages at once, each adding to one number that only the lock protects.

use crate::stage::{KEY, Stage, ask, in_time, zero};
use fencelock_interop::{KNOWN, Places, Process, Shares};
use std::fs;
use tokio::task::JoinSet;

const TIMES: u32 = 25;
const SIBLINGS: usize = 2;

/// Everybody who is installed and shares locks, and two of ours.
async fn crew(stage: &Stage, places: Places) -> Vec<Process> {
    let mut crew = Vec::new();
    for peer in KNOWN.iter().filter(|peer| peer.places == places && peer.shares == Shares::Locks) {
        if peer.command().is_ok() {
            crew.push(stage.peer(peer).await);
        }
    }
    for _ in 0..SIBLINGS {
        crew.push(stage.sibling().await);
    }
    crew
}

/// How much of what was to be added arrived; and what should have.
async fn count(places: Places, key: impl Fn(usize) -> String) -> (u32, u32) {
    let stage = Stage::of(places).await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = zero(dir.path());
    let crew = crew(&stage, places).await;
    let expected = u32::try_from(crew.len()).expect("a few") * TIMES;
    let mut work = JoinSet::new();
    for (number, mut member) in crew.into_iter().enumerate() {
        let line = format!("count {} 20000 {file} {TIMES}", key(number));
        work.spawn(async move {
            let said = in_time(&member.versions.clone(), ask(&mut member, &line)).await;
            assert_eq!(said, "counted", "{}", member.versions);
        });
    }
    work.join_all().await;
    let counted = fs::read_to_string(&file).expect("a count");
    (counted.parse().unwrap_or(0), expected)
}

pub(crate) async fn on_one_server_nothing_is_lost() {
    let (counted, expected) = count(Places::One, |_| KEY.to_owned()).await;
    assert_eq!(counted, expected);
}

pub(crate) async fn on_five_servers_nothing_is_lost() {
    let (counted, expected) = count(Places::Five, |_| KEY.to_owned()).await;
    assert_eq!(counted, expected);
}

/// Or the two above would prove nothing.
pub(crate) async fn without_a_common_key_much_is_lost() {
    let siblings_only = count(Places::One, |number| format!("{KEY}:{number}")).await;
    assert!(siblings_only.0 < siblings_only.1, "{siblings_only:?}");
}
