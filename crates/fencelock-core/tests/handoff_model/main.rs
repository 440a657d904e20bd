//! The hand-off on one master, searched exhaustively: may a waiter begin as soon as it hears of its grant?
//!
//! A release hands the lock to the first waiter under a short claim TTL and publishes a grant message. The *early start*
//! lets that waiter begin at once, one message after the release, without waiting for the answer to a claim:
//!
//! 1. Its validity is counted from when it sent ENQ or, if later, the last POLL that was answered QUEUED, and ends with the
//!    claim TTL. That request ran before the hand-off, so it was sent before the claim TTL began on the server.
//! 2. QUEUED names the fence counter. A grant message whose fence is not above the last counter heard is stale: dropped.
//! 3. A POLL or RENEW that is answered OK while the guard is valid makes it valid for the TTL from when that was sent.
//! 4. A guard whose validity has passed is lost for ever.
//!
//! The server's side: RENEW and POLL raise the TTL of a key that carries the token, never lower it and never set the key
//! anew; a hand-off happens only while the key is absent, and a token that left the queue is not QUEUED again by a POLL.
//!
//! Messages, grant messages and answers come late, never or twice, in any order; the server drops waiters at any moment; any
//! client may stop at any point. Each rule above is then broken in turn, and the search has to notice.

mod client;
mod explorer;
mod model;
mod server;
mod words;

use explorer::{Explored, explore};
use model::{Breach, Flaw, Model, Scope, State, landmark};

/// Two waiters, a plain client, one poll, one renewal, one duplicate: enough for every flaw below to show.
const SMALL: Scope = Scope {
    clients: 2,
    polls: 1,
    renewals: 1,
    runs: 2,
    spare_runs: 1,
    foreign: true,
    claim_may_outlast_ttl: false,
    untidied: false,
};

/// Above what any search here needs; 94 bytes a state.
const LIMIT: usize = 60_000_000;

fn search(model: Model, sought: impl Fn(&State) -> bool) -> Explored {
    #[allow(clippy::disallowed_methods, reason = "how long a search took is for the reader, no lock depends on it")]
    let start = std::time::Instant::now();
    let found = explore(&model, LIMIT, sought);
    let flaw = model.flaw.map_or_else(|| String::from("the rule"), |flaw| format!("{flaw:?}"));
    println!("{flaw}, {:?}", model.scope);
    println!("  {} states, {} steps deep, {:.1} s", found.states, found.depth, start.elapsed().as_secs_f32());
    for (step, text) in (1..).zip(found.trace.iter().flatten()) {
        println!("  {step:>3}. {text}");
    }
    found
}

/// No promise is broken anywhere, and the search has been everywhere it should.
fn holds(scope: Scope, landmarks: u32) {
    let found = search(Model { scope, flaw: None }, |state| !Model::breaches(state).is_empty());
    assert!(found.trace.is_none(), "a promise is broken; the steps are printed above");
    assert_eq!(found.landmarks & landmarks, landmarks, "the search never came where it matters");
}

/// With `flaw`, the promise is broken.
fn breaks(flaw: Flaw, promise: Breach, scope: Scope) {
    let found = search(Model { scope, flaw: Some(flaw) }, |state| Model::breaches(state).contains(&promise));
    assert!(found.trace.is_some(), "{flaw:?} went unnoticed");
}

#[test]
fn an_early_start_keeps_every_promise_beside_a_plain_client() {
    holds(Scope { spare_runs: 2, ..SMALL }, landmark::ALL);
}

#[test]
fn an_early_start_keeps_every_promise_with_three_clients() {
    holds(Scope { clients: 3, foreign: false, spare_runs: 0, ..SMALL }, landmark::ALL);
}

#[test]
fn an_early_start_keeps_every_promise_with_three_clients_and_duplicates() {
    let by_poll = landmark::CONFIRMED_BY_POLL | landmark::STARTED_BY_POLL;
    holds(Scope { clients: 3, polls: 0, renewals: 2, spare_runs: 2, ..SMALL }, landmark::ALL & !by_poll);
}

#[test]
fn an_early_start_keeps_every_promise_over_two_polls() {
    holds(Scope { polls: 2, spare_runs: 0, ..SMALL }, landmark::ALL);
}

#[test]
fn an_early_start_keeps_every_promise_over_two_renewals() {
    holds(Scope { renewals: 2, ..SMALL }, landmark::ALL);
}

#[test]
fn an_early_start_keeps_every_promise_even_if_the_claim_ttl_is_the_longer_one() {
    holds(Scope { claim_may_outlast_ttl: true, ..SMALL }, landmark::ALL);
}

#[test]
#[ignore = "11 million states: a minute and 1.2 GB"]
fn an_early_start_keeps_every_promise_over_two_polls_with_duplicates() {
    holds(Scope { polls: 2, ..SMALL }, landmark::ALL);
}

#[test]
#[ignore = "a minute and a half, 2 GB"]
fn an_early_start_keeps_every_promise_with_three_polling_clients_and_duplicates() {
    holds(Scope { clients: 3, foreign: false, ..SMALL }, landmark::ALL);
}

#[test]
fn counting_from_receipt_breaks_exclusion() {
    breaks(Flaw::CountsFromReceipt, Breach::Exclusion, SMALL);
}

/// The last request may have been sent after the hand-off, when the claim TTL was running already.
#[test]
fn counting_from_an_unanswered_request_breaks_exclusion() {
    breaks(Flaw::CountsFromLastSent, Breach::Exclusion, SMALL);
}

#[test]
fn taking_the_grant_message_as_ownership_breaks_exclusion() {
    breaks(Flaw::MessageIsOwnership, Breach::Exclusion, SMALL);
}

/// A hand-off lapses, an ENQ that ran twice puts its token back in line, and a poll is answered QUEUED for the second time
/// in line. The message of the first time must not start a guard that counts from that poll.
#[test]
fn trusting_a_stale_grant_message_breaks_exclusion() {
    breaks(Flaw::HeedsStaleMessages, Breach::Exclusion, SMALL);
}

/// Without any duplicate, if a token that has lost its hand-off is told QUEUED where it should be told LOST.
#[test]
fn trusting_a_stale_grant_message_breaks_exclusion_without_duplicates_if_polls_enqueue_unknown_clients() {
    breaks(Flaw::QueuesStrangers, Breach::Exclusion, Scope { spare_runs: 0, ..SMALL });
}

/// On one master the key itself keeps two guards apart, but the guard comes back with a fence that has been passed.
#[test]
fn a_revived_guard_is_behind_a_later_one() {
    let model = Model { scope: Scope { polls: 0, ..SMALL }, flaw: Some(Flaw::RevivesLapsed) };
    let behind = |state: &State| state.clients.iter().any(|guard| guard.is_valid() && guard.fence < state.begun);
    assert!(search(model, behind).trace.is_some(), "reviving went unnoticed");
}

#[test]
fn handing_off_a_held_lock_breaks_exclusion() {
    breaks(Flaw::HandsOffWhileHeld, Breach::Exclusion, SMALL);
}

#[test]
fn a_renewal_that_sets_the_key_anew_overtakes_the_queue() {
    breaks(Flaw::RenewRecreates, Breach::Order, SMALL);
}

#[test]
fn a_renewal_that_shortens_the_ttl_breaks_exclusion() {
    breaks(Flaw::RenewShortens, Breach::Exclusion, Scope { claim_may_outlast_ttl: true, ..SMALL });
}

#[test]
fn a_plain_delete_by_another_client_breaks_exclusion() {
    breaks(Flaw::ForeignPlainDelete, Breach::Exclusion, SMALL);
}

#[test]
fn an_enqueue_that_barges_breaks_the_order() {
    breaks(Flaw::EnqueueBarges, Breach::Order, SMALL);
}

/// PUBLISH counts the receivers on its own node only: in a cluster, or with a subscriber on a replica, 0 does not mean nobody.
#[test]
fn skipping_a_waiter_that_was_reached_breaks_exclusion() {
    breaks(Flaw::SkipsReachedWaiter, Breach::Exclusion, SMALL);
}

/// The searches leave out what can no longer matter. Where they find a shortest trace, the full search finds one as long.
#[test]
fn leaving_out_what_cannot_matter_changes_no_verdict() {
    let found = [
        (Flaw::CountsFromReceipt, Breach::Exclusion),
        (Flaw::CountsFromLastSent, Breach::Exclusion),
        (Flaw::MessageIsOwnership, Breach::Fence),
        (Flaw::HandsOffWhileHeld, Breach::Exclusion),
        (Flaw::RenewRecreates, Breach::Order),
        (Flaw::ForeignPlainDelete, Breach::Fence),
        (Flaw::SkipsReachedWaiter, Breach::Key),
    ];
    for (flaw, promise) in found {
        let steps = [false, true].map(|untidied| {
            let model = Model { scope: Scope { spare_runs: 0, untidied, ..SMALL }, flaw: Some(flaw) };
            let found = explore(&model, LIMIT, |state| Model::breaches(state).contains(&promise));
            found.trace.expect("the flaw shows").len()
        });
        assert_eq!(steps[0], steps[1], "{flaw:?}");
    }
}
