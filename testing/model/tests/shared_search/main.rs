//! Every order in which a few clients can share a key, wait, renew, downgrade, stop and release, on the model of the scripts, with
//! programs that use the key without the scripts. Each rule is dropped once, and the search finds the shortest
//! way to the damage.
//!
//! Waiters learn of a hand-off by their next poll, or by its message, which may be late, repeated or lost.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod checks;
mod client;
mod coverage;
mod resizing;
mod search;
mod world;

use client::{Client, Kind, PERMIT};
use coverage::{
    AFTER_READERS, BLOCKED, Coverage, DOWNGRADED, LEASES, OTHER_LIMIT, PERMITS, PLAIN, QUEUE, READERS, RESIZED, SEVERAL,
};
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
type Row = (&'static str, Setting, &'static [&'static [Coverage]]);

const fn permit(weight: u32, limit: u32) -> Kind {
    Kind::Permits { weight, limit }
}

fn plain(setting: Setting, duplicates: u8) -> Setting {
    Setting { plain: true, duplicates, ..setting }
}

fn fixed() -> Vec<Row> {
    let downgrader = Kind::Downgrader;
    let beside_plain = "a writer that downgrades, a reader, a plain client, a duplicate";
    vec![
        (
            "a writer and two readers",
            setting(&[WRITER, READER, READER]),
            &[LEASES, QUEUE, BLOCKED, READERS, SEVERAL, AFTER_READERS],
        ),
        ("two writers and a reader", setting(&[WRITER, WRITER, READER]), &[LEASES, QUEUE, BLOCKED, AFTER_READERS]),
        (
            "two readers, a plain client, a duplicate",
            plain(setting(&[READER, READER]), 1),
            &[LEASES, QUEUE, READERS, SEVERAL, PLAIN],
        ),
        (
            "a writer, a reader, a plain client, two duplicates",
            plain(setting(&[WRITER, READER]), 2),
            &[LEASES, QUEUE, BLOCKED, AFTER_READERS, PLAIN],
        ),
        (
            "a writer that downgrades, and two readers",
            setting(&[downgrader, READER, READER]),
            &[LEASES, QUEUE, BLOCKED, READERS, SEVERAL, AFTER_READERS, DOWNGRADED],
        ),
        (beside_plain, plain(setting(&[downgrader, READER]), 1), &[LEASES, QUEUE, BLOCKED, READERS, DOWNGRADED, PLAIN]),
        ("three permits of two", setting(&[PERMIT, PERMIT, PERMIT]), &[LEASES, QUEUE, PERMITS]),
        (
            "permits of weight two and one",
            setting(&[permit(2, 2), PERMIT, PERMIT]),
            &[LEASES, QUEUE, BLOCKED, PERMITS, SEVERAL],
        ),
        ("clients with two limits", setting(&[PERMIT, PERMIT, permit(1, 3)]), &[LEASES, PERMITS, OTHER_LIMIT]),
        ("a writer and two permits", setting(&[WRITER, PERMIT, PERMIT]), &[LEASES, QUEUE, BLOCKED, PERMITS, SEVERAL]),
    ]
}

/// Semaphores whose limit is changed.
fn resized() -> Vec<Row> {
    let setting = |kinds: &[Kind], resizes| Setting { resizes, ..setting(kinds) };
    vec![
        (
            "three permits of a semaphore that is resized twice",
            setting(&[PERMIT, PERMIT, PERMIT], 2),
            &[LEASES, QUEUE, PERMITS, RESIZED, OTHER_LIMIT],
        ),
        (
            "permits of weight two and one, resized",
            setting(&[permit(2, 2), PERMIT, PERMIT], 1),
            &[LEASES, QUEUE, BLOCKED, PERMITS, SEVERAL, RESIZED],
        ),
        (
            "clients that disagree, and a semaphore that is resized",
            setting(&[PERMIT, PERMIT, permit(1, 3)], 1),
            &[LEASES, PERMITS, OTHER_LIMIT],
        ),
        (
            "a writer and two permits of a semaphore that is resized",
            setting(&[WRITER, PERMIT, PERMIT], 1),
            &[LEASES, QUEUE, BLOCKED, PERMITS, SEVERAL, RESIZED],
        ),
    ]
}

#[test]
fn clients_that_share_a_key_keep_every_promise() {
    for (name, setting, covers) in fixed().into_iter().chain(resized()) {
        holds(name, &setting, covers);
    }
}

#[test]
fn a_removed_rule_leads_to_a_violation() {
    let readers = setting(&[WRITER, READER, READER]);
    let plain = Setting { plain: true, renewals: 1, ..setting(&[READER, READER]) };
    let permits = setting(&[PERMIT, PERMIT, permit(2, 2)]);
    breaks(Rule::OvertakesWaiters, &readers, "order", 3);
    breaks(Rule::LockEndsBeforeItsHolds, &plain, "key", 4);
    breaks(Rule::LockEndsBeforeItsHolds, &plain, "a plain client", 5);
    breaks(Rule::DowngradesWithTheReply, &setting(&[Kind::Downgrader, READER]), "exclusion", 3);
    breaks(Rule::FreesTwice, &Setting { duplicates: 1, ..permits }, "too many permits", 4);
    let limits = setting(&[PERMIT, PERMIT, permit(1, 3)]);
    breaks(Rule::IgnoresLimits, &limits, "two limits", 2);
    breaks(Rule::IgnoresLimits, &limits, "too many permits", 3);
    breaks(Rule::CancelsWithoutAdvance, &setting(&[READER, WRITER, READER]), "there is room for the first waiter", 4);
    breaks(Rule::RenewsEndedHolds, &Setting { renewals: 1, ..setting(&[READER, WRITER]) }, "exclusion", 5);
    let resized = Setting { resizes: 1, ..setting(&[PERMIT, PERMIT, PERMIT]) };
    breaks(Rule::ResizeForgetsThePermitsInUse, &resized, "too many permits", 5);
    breaks(Rule::ResizeLeavesWaiters, &resized, "a waiter is refused", 5);
    breaks(Rule::PollsByTheLimitBefore, &resized, "a waiter is refused", 5);
    let weights = Setting { resizes: 1, ..setting(&[permit(2, 2), PERMIT, PERMIT]) };
    breaks(Rule::ResizeKeepsEveryWaiter, &weights, "a waiter is refused", 5);
}

#[test]
fn a_removed_rule_of_hand_off_messages_leads_to_a_violation() {
    let readers = setting(&[WRITER, READER, WRITER]);
    let permits = setting(&[PERMIT, permit(2, 2), PERMIT]);
    breaks(Rule::CountsFromTheMessage, &readers, "key", 5);
    breaks(Rule::CountsFromTheMessage, &readers, "exclusion", 6);
    breaks(Rule::TakesMessagesForLeases, &readers, "key", 5);
    breaks(Rule::TakesMessagesForLeases, &permits, "too many permits", 6);
    let twice = Setting { duplicates: 1, ..readers };
    breaks(Rule::BelievesStaleMessages, &twice, "exclusion", 8);
    breaks(Rule::BelievesStaleMessages, &Setting { duplicates: 1, ..permits }, "too many permits", 8);
}

/// `scripts/search` runs these.
mod larger {
    use super::*;

    /// Any one request twice.
    #[test]
    #[ignore = "2 million states: 10 seconds"]
    fn three_clients_with_a_request_that_arrives_twice_keep_every_promise() {
        const TWICE: &[Coverage] = &[Coverage::Duplicated];
        let three: [(_, _, &[&[Coverage]]); 4] = [
            ("a writer and two readers, a duplicate", [WRITER, READER, READER], &[BLOCKED, READERS, TWICE]),
            ("two writers and a reader, a duplicate", [WRITER, WRITER, READER], &[BLOCKED, TWICE]),
            (
                "a writer that downgrades, and two readers, a duplicate",
                [Kind::Downgrader, READER, READER],
                &[BLOCKED, READERS, DOWNGRADED, TWICE],
            ),
            ("three permits of two, a duplicate", [PERMIT, PERMIT, PERMIT], &[PERMITS, TWICE]),
        ];
        for (name, kinds, covers) in three {
            holds(name, &Setting { duplicates: 1, ..setting(&kinds) }, covers);
        }
    }

    fn renewing(rows: Vec<Row>) {
        for (name, setting, covers) in rows {
            holds(name, &Setting { renewals: 1, ..setting }, covers);
        }
    }

    #[test]
    #[ignore = "10 million states: 60 seconds and a GB"]
    fn clients_that_renew_keep_every_promise() {
        renewing(fixed());
    }

    #[test]
    #[ignore = "11 million states: 90 seconds and 1.5 GB"]
    fn clients_that_renew_permits_keep_every_promise_when_the_limit_is_changed() {
        renewing(resized());
    }
}
