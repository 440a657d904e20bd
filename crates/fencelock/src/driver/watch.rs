use super::waiting_task::{LAST_ANSWER, Next, WaitingTask};
use crate::error::{Error, busy, unreachable};
use fencelock_core::engine::View;
use fencelock_core::{Moment, Occupied};
use std::time::Duration;

/// The interval at which the callback of a task is called.
const NEWS: Duration = Duration::from_secs(1);
/// The delay of the first report: the leader needs this time for the first reply of the backend.
const FIRST_NEWS: Duration = Duration::from_millis(10);

/// Waits for a step in the queue of this client. For a task with a deadline or a callback.
pub(super) async fn wait_in_queue(task: &WaitingTask<'_>) -> Result<Next, Error> {
    let (driver, request) = (task.driver(), task.request);
    let deadline = request.options.wait.map_or(Moment::NEVER, |wait| task.arrived + wait);
    loop {
        tokio::select! {
            biased;
            step = task.next() => return step,
            () = std::future::ready(()) => {}
        }
        let reported = task.view().is_some_and(|View { ahead, occupied }| task.report_wait(ahead, occupied));
        let left = deadline.since(driver.clock.now());
        let sleep = match &request.on_wait {
            None => left,
            Some(_) => left.min(if reported { NEWS } else { FIRST_NEWS }),
        };
        tokio::select! {
            biased;
            step = task.next() => return step,
            () = tokio::time::sleep(sleep) => {}
        }
        if driver.clock.now() >= deadline {
            let known = task.view().map(|view| view.occupied);
            return tokio::select! {
                biased;
                step = task.next() => step,
                error = out_of_time(task, known) => Err(error),
            };
        }
    }
}

/// The error after the wait has ended. Inspects the key once to report its holder.
async fn out_of_time(task: &WaitingTask<'_>, known: Option<Occupied>) -> Error {
    let key = &task.request.key;
    let inspected = tokio::time::timeout(LAST_ANSWER, task.driver().backend.inspect(key)).await;
    let (seen, cause) = match inspected {
        Ok(Ok(seen)) => (seen.map(Occupied::from), None),
        Ok(Err(cause)) => (None, Some(cause)),
        Err(_) => (None, Some(task.driver().timed_out())),
    };
    match (seen.or(known), cause) {
        (None, Some(cause)) => unreachable(Some(key), cause, task.waited(), 1),
        (occupied, _) => busy(key, occupied, task.waited(), 1),
    }
}
