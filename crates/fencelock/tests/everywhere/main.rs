//! The guarantees to users, on every kind of backend, with and without lease sharing.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[allow(clippy::unnecessary_wraps, reason = "some need a server that may not be there, and all are opened alike")]
mod backends;
mod elections;
mod facts;
mod fairness;
mod once;
mod readers;
mod semaphores;
mod several_keys;
mod slots;

/// One test for each fact on each backend. Some have an attribute. Candidates of an election and runs of work never share leases, so
/// these facts are tested one way.
macro_rules! everywhere {
    (@at $attribute:meta, $backend:ident, [$($fact:path => $name:ident),+ $(,)?], [$($single:path => $single_name:ident),+ $(,)?]) => {
        mod $backend {
            mod sharing {
                $(#[tokio::test]
                #[$attribute]
                async fn $name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $fact(&backend, true).await;
                })+
                $(#[tokio::test]
                #[$attribute]
                async fn $single_name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $single(&backend).await;
                })+
            }
            mod alone {
                $(#[tokio::test]
                #[$attribute]
                async fn $name() {
                    let Some(backend) = crate::backends::$backend() else { return };
                    $fact(&backend, false).await;
                })+
            }
        }
    };
    (both ways: $both:tt, one way: $one:tt) => {
        everywhere!(@at cfg(all()), memory, $both, $one);
        everywhere!(@at cfg(all()), leases, $both, $one);
        everywhere!(@at cfg(all()), file, $both, $one);
        everywhere!(@at cfg(all()), register, $both, $one);
        everywhere!(@at cfg(all()), redis, $both, $one);
        everywhere!(@at ignore = "it takes a minute and a half: scripts/test-servers", sentinel, $both, $one);
        everywhere!(@at ignore = "it takes a minute and a half: scripts/test-servers", cluster, $both, $one);
        everywhere!(@at ignore = "it takes a minute: scripts/test-servers", postgres, $both, $one);
        everywhere!(@at cfg(all()), quorum, $both, $one);
        everywhere!(@at cfg(all()), quorum_of_redis, $both, $one);
    };
}

everywhere! {
    both ways: [
        crate::facts::tasks_of_two_clients_exclude_each_other => tasks_of_two_clients_exclude_each_other,
        crate::facts::tasks_of_a_client_are_served_in_order => tasks_of_a_client_are_served_in_order,
        crate::facts::a_wait_is_bounded => a_wait_is_bounded,
        crate::facts::a_claim_without_a_wait_is_answered_at_once => a_claim_without_a_wait_is_answered_at_once,
        crate::facts::a_client_reports_how_many_of_its_tasks_wait => a_client_reports_how_many_of_its_tasks_wait,
        crate::facts::a_task_that_gives_up_leaves_nothing => a_task_that_gives_up_leaves_nothing,
        crate::facts::each_label_is_seen_while_it_holds => each_label_is_seen_while_it_holds,
        crate::facts::a_loss_is_reported_and_the_next_task_is_served => a_loss_is_reported_and_the_next_task_is_served,
        crate::fairness::another_client_comes_after_a_batch_of_grants => another_client_comes_after_a_batch_of_grants,
        crate::fairness::another_client_comes_after_a_batch_of_time => another_client_comes_after_a_batch_of_time,
        crate::fairness::a_client_that_polls_gets_the_key => a_client_that_polls_gets_the_key,
        crate::readers::readers_hold_together_and_writers_alone => readers_hold_together_and_writers_alone,
        crate::readers::a_downgraded_writer_lets_readers_in_and_no_writer => a_downgraded_writer_lets_readers_in_and_no_writer,
        crate::readers::a_reader_that_is_evicted_is_notified_and_the_other_reads_on => a_reader_that_is_evicted_is_notified_and_the_other_reads_on,
        crate::readers::a_reader_goes_on_in_another_client => a_reader_goes_on_in_another_client,
        crate::several_keys::clients_with_opposite_orders_never_deadlock => clients_with_opposite_orders_never_deadlock,
        crate::several_keys::a_busy_key_leaves_the_others_free => a_busy_key_leaves_the_others_free,
        crate::several_keys::sixteen_keys_are_locked_together => sixteen_keys_are_locked_together,
        crate::several_keys::each_key_is_granted_in_the_order_of_its_claims => each_key_is_granted_in_the_order_of_its_claims,
        crate::several_keys::a_wait_that_is_given_up_releases_what_is_held => a_wait_that_is_given_up_releases_what_is_held,
        crate::several_keys::the_loss_of_one_is_the_loss_of_all => the_loss_of_one_is_the_loss_of_all,
        crate::several_keys::a_loss_while_waiting_begins_anew => a_loss_while_waiting_begins_anew,
        crate::several_keys::a_set_goes_on_in_another_client => a_set_goes_on_in_another_client,
        crate::semaphores::no_more_permits_are_in_use_than_the_limit => no_more_permits_are_in_use_than_the_limit,
        crate::semaphores::clients_that_disagree_on_the_limit_are_refused => clients_that_disagree_on_the_limit_are_refused,
        crate::semaphores::permits_go_on_in_another_client => permits_go_on_in_another_client,
        crate::slots::a_slot_has_one_holder_and_tokens_of_its_own => a_slot_has_one_holder_and_tokens_of_its_own,
        crate::slots::a_full_set_is_busy_and_a_wait_that_is_given_up_leaves_nothing => a_full_set_is_busy_and_a_wait_that_is_given_up_leaves_nothing,
        crate::slots::a_slot_goes_on_in_another_client => a_slot_goes_on_in_another_client,
    ],
    one way: [
        crate::once::many_clients_do_the_work_once => many_clients_do_the_work_once,
        crate::once::a_failure_gives_the_window_back => a_failure_gives_the_window_back,
        crate::once::a_start_uses_the_window_up => a_start_uses_the_window_up,
        crate::once::a_lost_run_does_not_count => a_lost_run_does_not_count,
        crate::once::cleared_work_runs_again => cleared_work_runs_again,
        crate::once::the_next_window_has_a_run_of_its_own => the_next_window_has_a_run_of_its_own,
        crate::elections::candidates_of_one_client_have_terms_of_their_own => candidates_of_one_client_have_terms_of_their_own,
        crate::elections::a_published_value_is_read_as_it_is => a_published_value_is_read_as_it_is,
        crate::elections::a_candidate_that_withdraws_leaves_nothing => a_candidate_that_withdraws_leaves_nothing,
        crate::elections::observers_see_every_leader_in_the_order_of_terms => observers_see_every_leader_in_the_order_of_terms,
        crate::elections::work_ends_with_the_term_and_begins_again_with_the_next => work_ends_with_the_term_and_begins_again_with_the_next,
    ]
}
