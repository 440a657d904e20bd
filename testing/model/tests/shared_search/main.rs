//! Every order in which a few clients can share a key, wait, renew, downgrade, stop and release, on the model of the scripts, with
//! clients of version 0 and programs that use the key without the scripts. Each rule is dropped once, and the search finds the shortest
//! way to the damage.
//!
//! The clients are those of one server without hand-off messages: the searches of the engine have these.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod checks;
mod client;
mod coverage;
mod resizing;
mod search;
mod world;

use client::{Client, Kind, PERMIT};
use coverage::Coverage;
use search::{breaks, holds};
use world::{Rule, Setting};

const READER: Kind = Kind::Shared;
const WRITER: Kind = Kind::Writer;

fn setting(kinds: &[Kind]) -> Setting {
    Setting {
        clients: kinds.iter().map(|kind| Client::new(*kind)).collect(),
        plain: false,
        duplicates: 0,
        renewals: 0,
        resizes: 0,
        rule: Rule::Production,
        sought: None,
    }
}

/// A setting, and what its search must come across.
type Row = (&'static str, Setting, &'static [Coverage]);

fn all() -> Vec<Row> {
    let permit = |weight, limit| Kind::Permits { weight, limit };
    let plain = |setting: Setting, duplicates| Setting { plain: true, duplicates, ..setting };
    let resized = |kinds: &[Kind], resizes| Setting { resizes, ..setting(kinds) };
    vec![
        ("three permits of a semaphore that is resized twice", resized(&[PERMIT, PERMIT, PERMIT], 2), &[]),
        ("permits of weight two and one, resized", resized(&[permit(2, 2), PERMIT, PERMIT], 1), &[]),
        ("clients that disagree, and a semaphore that is resized", resized(&[PERMIT, PERMIT, permit(1, 3)], 1), &[]),
        ("a writer and two permits of a semaphore that is resized", resized(&[WRITER, PERMIT, PERMIT], 1), &[]),
        ("a writer and two readers", setting(&[WRITER, READER, READER]), &[]),
        ("two writers and a reader", setting(&[WRITER, WRITER, READER]), &[]),
        ("two readers, a plain client, a duplicate", plain(setting(&[READER, READER]), 1), &[]),
        ("a writer, a reader, a plain client, two duplicates", plain(setting(&[WRITER, READER]), 2), &[]),
        ("a writer that downgrades, and two readers", setting(&[Kind::Downgrader, READER, READER]), &[]),
        (
            "a writer that downgrades, a reader, a plain client, a duplicate",
            plain(setting(&[Kind::Downgrader, READER]), 1),
            &[],
        ),
        ("three permits of two", setting(&[PERMIT, PERMIT, PERMIT]), &[]),
        ("permits of weight two and one", setting(&[permit(2, 2), PERMIT, PERMIT]), &[]),
        ("clients with two limits", setting(&[PERMIT, PERMIT, permit(1, 3)]), &[]),
        ("a writer and two permits", setting(&[WRITER, PERMIT, PERMIT]), &[]),
        ("a client of version 0 and two readers", setting(&[Kind::Before, READER, READER]), &[]),
        (
            "a client of version 0, a reader, a plain client, a duplicate",
            plain(setting(&[Kind::Before, READER]), 1),
            &[],
        ),
        ("two clients of version 0 and a permit", setting(&[Kind::Before, Kind::Before, PERMIT]), &[]),
    ]
}

#[test]
fn clients_that_share_a_key_keep_every_promise() {
    for (name, setting, covers) in all() {
        holds(name, &setting, covers);
    }
}

#[test]
fn a_rule_that_is_dropped_leads_to_damage() {
    let readers = setting(&[WRITER, READER, READER]);
    let plain = Setting { plain: true, renewals: 1, ..setting(&[READER, READER]) };
    let permits = setting(&[PERMIT, PERMIT, Kind::Permits { weight: 2, limit: 2 }]);
    breaks(Rule::OvertakesWaiters, &readers, "order", 3);
    breaks(Rule::LockEndsBeforeItsHolds, &plain, "key", 4);
    breaks(Rule::LockEndsBeforeItsHolds, &plain, "a plain client", 5);
    breaks(Rule::DowngradesWithTheReply, &setting(&[Kind::Downgrader, READER]), "exclusion", 3);
    breaks(Rule::FreesTwice, &Setting { duplicates: 1, ..permits }, "too many permits", 4);
    let limits = setting(&[PERMIT, PERMIT, Kind::Permits { weight: 1, limit: 3 }]);
    breaks(Rule::IgnoresLimits, &limits, "two limits", 2);
    breaks(Rule::IgnoresLimits, &limits, "too many permits", 3);
    breaks(Rule::CancelsWithoutAdvance, &setting(&[READER, WRITER, READER]), "there is room for the first waiter", 4);
    breaks(Rule::RenewsEndedHolds, &Setting { renewals: 1, ..setting(&[READER, WRITER]) }, "exclusion", 5);
    let resized = Setting { resizes: 1, ..setting(&[PERMIT, PERMIT, PERMIT]) };
    breaks(Rule::ResizeForgetsThePermitsInUse, &resized, "too many permits", 5);
    breaks(Rule::ResizeLeavesWaiters, &resized, "a waiter is refused", 5);
    breaks(Rule::PollsByTheLimitBefore, &resized, "a waiter is refused", 5);
    let weights = Setting { resizes: 1, ..setting(&[Kind::Permits { weight: 2, limit: 2 }, PERMIT, PERMIT]) };
    breaks(Rule::ResizeKeepsEveryWaiter, &weights, "a waiter is refused", 5);
    breaks(Rule::DropsUnknownEntries, &setting(&[Kind::Before, READER, Kind::Before]), "order", 6);
}

/// `.ci/run` runs these too.
mod in_ci {
    use super::*;

    /// Three clients, and any one request twice.
    #[test]
    #[ignore = "a million states: a quarter of a minute"]
    fn three_clients_with_a_request_that_arrives_twice_keep_every_promise() {
        let three = [
            ("a writer and two readers, a duplicate", [WRITER, READER, READER]),
            ("two writers and a reader, a duplicate", [WRITER, WRITER, READER]),
            ("a writer that downgrades, and two readers, a duplicate", [Kind::Downgrader, READER, READER]),
            ("three permits of two, a duplicate", [PERMIT, PERMIT, PERMIT]),
        ];
        for (name, kinds) in three {
            holds(name, &Setting { duplicates: 1, ..setting(&kinds) }, &[Coverage::Duplicated]);
        }
    }

    /// The same with a renewal of each client.
    #[test]
    #[ignore = "millions of states"]
    fn clients_that_renew_keep_every_promise() {
        for (name, setting, covers) in all() {
            holds(name, &Setting { renewals: 1, ..setting }, covers);
        }
    }
}
