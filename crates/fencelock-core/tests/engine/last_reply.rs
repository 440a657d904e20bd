//! A wait that ends without a reply is refused with the holder of the last reply, also if another task was told.

use crate::announcing::{Client, queued};
use fencelock_core::engine::FailureReason;
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
