//! Two processes pass a lock back and forth: from the call of `release` in one to the return of `lock` in the other.

use crate::job::{self, BenchJob};
use crate::report::{HandOff, percentile};
use crate::{Effort, Failure, bare, workers};
use fencelock::Clock as _;
use fencelock::backends::BootClock;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Long enough for the other process to enter the queue, short enough that no renewal occurs.
const HOLD: Duration = Duration::from_millis(3);

/// A hold, with the clock that all processes of a machine share.
#[derive(Debug, Serialize, Deserialize)]
struct TimedHold {
    fence: u64,
    began: u64,
    acquired: u64,
    released: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandOffLog {
    holds: Vec<TimedHold>,
    pings: Vec<u64>,
}

pub(crate) fn measure(url: &str, effort: Effort) -> Result<HandOff, Failure> {
    let span = effort.span * u32::try_from(effort.pairs)?;
    let logs: Vec<HandOffLog> = workers::run(&BenchJob::HandOff(job::HandOffJob { url: url.to_owned(), span }), 2)?;
    let mut pings: Vec<u64> = logs.iter().flat_map(|log| log.pings.iter().copied()).collect();
    let mut holds: Vec<(usize, &TimedHold)> =
        logs.iter().enumerate().flat_map(|(process, log)| log.holds.iter().map(move |held| (process, held))).collect();
    holds.sort_by_key(|(_, held)| held.fence);
    let mut gaps: Vec<u64> = holds
        .windows(2)
        .filter(|pair| pair[0].0 != pair[1].0 && pair[1].1.began < pair[0].1.released)
        .map(|pair| pair[1].1.acquired.saturating_sub(pair[0].1.released))
        .collect();
    if gaps.len() < 10 || pings.is_empty() {
        return Err(format!("only {} hand-offs were measured", gaps.len()).into());
    }
    let (gap_p50, ping_p50) = (percentile(&mut gaps, 50.0), percentile(&mut pings, 50.0));
    Ok(HandOff {
        handoffs: gaps.len(),
        p50_us: gap_p50,
        p99_us: percentile(&mut gaps, 99.0),
        ping_p50_us: ping_p50,
        ping_p99_us: percentile(&mut pings, 99.0),
        ratio: gap_p50 / ping_p50,
    })
}

pub(crate) async fn work(job: &job::HandOffJob) -> Result<HandOffLog, Failure> {
    let client = fencelock::Client::connect(&job.url).await?;
    let mut connection = bare::connect(&job.url).await?;
    let mut log = HandOffLog { holds: Vec::new(), pings: Vec::new() };
    let end = BootClock.now() + job.span;
    while BootClock.now() < end {
        let began = micros();
        let guard = client.lock("pass-it-on").await?;
        let acquired = micros();
        let fence = guard.fencing_token().get();
        tokio::time::sleep(HOLD).await;
        let released = micros();
        guard.release().await?;
        log.holds.push(TimedHold { fence, began, acquired, released });
        // While the other process holds the lock and this one is idle: the round trip under the same conditions.
        tokio::time::sleep(HOLD / 3).await;
        let sent = micros();
        redis::cmd("PING").exec_async(&mut connection).await?;
        log.pings.push(micros() - sent);
    }
    Ok(log)
}

fn micros() -> u64 {
    BootClock.now().as_micros()
}
