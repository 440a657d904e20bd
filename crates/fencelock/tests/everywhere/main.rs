//! The guarantees to users, on every kind of backend, with and without lease sharing.
#![allow(clippy::unwrap_used, clippy::tests_outside_test_module)]

#[allow(clippy::unnecessary_wraps, reason = "some need a server that may not be there, and all are opened alike")]
mod backends;
mod elections;
mod facts;
mod once;
mod readers;
mod semaphores;
mod several_keys;
mod slots;

use backends::everywhere;

everywhere! {
    both ways: [
        crate::facts::tasks_of_two_clients_exclude_each_other => tasks_of_two_clients_exclude_each_other,
        crate::facts::tasks_of_a_client_are_served_in_order => tasks_of_a_client_are_served_in_order,
        crate::facts::a_client_reports_how_many_of_its_tasks_wait => a_client_reports_how_many_of_its_tasks_wait,
        crate::facts::a_task_that_gives_up_leaves_nothing => a_task_that_gives_up_leaves_nothing,
        crate::facts::a_loss_is_reported_and_the_next_task_is_served => a_loss_is_reported_and_the_next_task_is_served,
        crate::readers::readers_hold_together_and_writers_alone => readers_hold_together_and_writers_alone,
        crate::readers::a_downgraded_writer_lets_readers_in_and_no_writer => a_downgraded_writer_lets_readers_in_and_no_writer,
        crate::several_keys::clients_with_opposite_orders_never_deadlock => clients_with_opposite_orders_never_deadlock,
        crate::several_keys::a_set_goes_on_in_another_client => a_set_goes_on_in_another_client,
        crate::semaphores::no_more_permits_are_in_use_than_the_limit => no_more_permits_are_in_use_than_the_limit,
        crate::slots::a_slot_has_one_holder_and_tokens_of_its_own => a_slot_has_one_holder_and_tokens_of_its_own,
    ],
    one way: [
        crate::once::many_clients_do_the_work_once => many_clients_do_the_work_once,
        crate::once::cleared_work_runs_again => cleared_work_runs_again,
        crate::elections::observers_see_every_leader_in_the_order_of_terms => observers_see_every_leader_in_the_order_of_terms,
        crate::elections::work_ends_with_the_term_and_begins_again_with_the_next => work_ends_with_the_term_and_begins_again_with_the_next,
    ]
}
