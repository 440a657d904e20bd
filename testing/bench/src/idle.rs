//! A client that keeps the lease of its own key between two tasks: how often it locks the key again, and how long another
//! client waits for it.

use crate::report::{IdleLease, median, percentile};
use crate::uncontended::{ours_while, per_second};
use crate::{Effort, Failure};
use fencelock::backends::BootClock;
use fencelock::{Client, Clock as _};
use std::time::Duration;

const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the request after which the server announces waiters.
const UNUSED: Duration = Duration::from_millis(3);

pub(crate) async fn measure(url: &str, effort: Effort) -> Result<IdleLease, Failure> {
    let keeping = Client::builder().idle_timeout(IDLE_TIMEOUT).connect(url).await?;
    let mut rates = Vec::new();
    for _ in 0..effort.pairs {
        let cycles =
            per_second(1, effort.span, |_, measurement| ours_while(keeping.clone(), "idle".into(), measurement));
        rates.push(cycles.await?);
    }
    let other = Client::connect(url).await?;
    let end = BootClock.now() + effort.span * u32::try_from(effort.pairs)?;
    let mut waits = Vec::new();
    while BootClock.now() < end {
        keeping.lock("idle").await?.release().await?;
        tokio::time::sleep(UNUSED).await;
        let is_kept = other.inspect("idle").await?.is_some();
        let began = BootClock.now();
        let guard = other.lock("idle").await?;
        let waited = BootClock.now().since(began);
        guard.release().await?;
        if is_kept {
            waits.push(u64::try_from(waited.as_micros())?);
        }
    }
    if waits.len() < 10 {
        return Err(format!("only {} waits for an idle lease were measured", waits.len()).into());
    }
    Ok(IdleLease {
        cycles_per_s: median(rates),
        wait_p50_us: percentile(&mut waits, 50.0),
        wait_p99_us: percentile(&mut waits, 99.0),
    })
}
