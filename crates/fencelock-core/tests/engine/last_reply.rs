//! A wait that ends without a reply: when it ends, and with the holder of which reply, also if another task was told.

use crate::announcing::{Client, no_reply, queued};
use fencelock_core::engine::FailureReason;
use fencelock_core::{Fault, Unknown};
use std::time::Duration;

#[test]
fn the_next_task_knows_the_holder_that_the_first_one_was_told() {
    let mut client = Client::default();
    let wait = Some(Duration::from_secs(5));
    let [first, second] = [client.enter_for(wait), client.enter_for(wait)];
    client.claims(first);
    client.answered(first, Ok(queued()));
    for task in [first, second] {
        let refused = client.is_refused(task);
        assert!(matches!(refused, FailureReason::Busy(Some(_))), "{refused:?}");
    }
}

#[test]
fn a_task_that_arrives_when_no_other_waits_knows_no_holder() {
    let mut client = Client::default();
    let first = client.enter_for(Some(Duration::from_secs(3)));
    client.claims(first);
    client.answered(first, Ok(queued()));
    client.is_refused(first);
    let second = client.enter_for(Some(Duration::from_secs(1)));
    let refused = client.is_refused(second);
    assert!(matches!(refused, FailureReason::Unreachable(_)), "{refused:?}");
}

fn is_unreachable(reason: &FailureReason) -> bool {
    matches!(reason, FailureReason::Unreachable(_))
}

#[test]
fn a_wait_without_a_limit_ends_when_there_was_no_answer_for_the_ttl() {
    let quarantine = || Unknown::new("test", Fault::Quarantined, "new");
    for answer in [Some(Ok(queued())), Some(Err(quarantine())), None] {
        let mut client = Client::default();
        let task = client.enter();
        // Which counts, also after a failure.
        for answer in answer.into_iter().flat_map(|answer| [Err(no_reply()), answer]) {
            client.claims(task);
            client.answered(task, answer);
        }
        let last = client.seconds();
        client.claims(task);
        assert_eq!(client.limit(task), Some(last + 30), "a request in flight ends with the wait");
        assert!(is_unreachable(&client.is_refused(task)));
        assert!((30..=31).contains(&(client.seconds() - last)), "{} after {last}", client.seconds());
    }
}

#[test]
fn with_a_limit_only_the_limit_ends_a_wait() {
    let mut client = Client::default();
    let task = client.enter_for(Some(Duration::from_secs(90)));
    let begun = client.seconds();
    assert!(is_unreachable(&client.is_refused(task)));
    assert!((90..=91).contains(&(client.seconds() - begun)), "{}", client.seconds());
}

#[test]
fn each_task_behind_one_without_an_answer_waits_as_long_as_it_would_alone() {
    let limit = Some(Duration::from_secs(90));
    for first in [None, limit] {
        let mut client = Client::default();
        let mut tasks = Vec::from([first, None, limit].map(|wait| (client.enter_for(wait), client.seconds(), wait)));
        while !tasks.is_empty() {
            tasks.retain(|(task, begun, wait)| {
                let (ended, waited) = (client.goes_on(*task), client.seconds() - begun);
                let end = if wait.is_some() { 90 } else { 30 };
                // Each step of each task takes a second.
                assert!(waited < end + 10 && (ended.is_none() || waited >= end), "{task}: {waited} s, {ended:?}");
                ended.is_none()
            });
        }
    }
}
