//! 256 tasks of one process acquire one key, with an empty critical section: with and without lease sharing, and as
//! readers.

use crate::report::{Local, median};
use crate::uncontended::per_second;
use crate::{Effort, Failure};
use fencelock::Client;
use fencelock_testkit::{RedisServer, redlock_url};
use std::time::Duration;

const TASKS: usize = 256;
const NODES: usize = 5;

pub(crate) async fn measure(url: &str, effort: Effort) -> Result<Vec<Local>, Failure> {
    let nodes = (0..NODES).map(|_| RedisServer::start()).collect::<Result<Vec<_>, _>>()?;
    let quorum = redlock_url(&nodes, "trust_empty=true");
    Ok(vec![
        compare("one Redis", url, effort).await?,
        compare("a quorum of 5", &quorum, effort).await?,
        compare("memory", "memory:", effort).await?,
    ])
}

/// The shared grants of as many readers.
pub(crate) async fn shared_locks(url: &str, span: Duration) -> Result<f64, Failure> {
    let client = Client::connect(url).await?;
    let rate = per_second(TASKS, span, |_, measurement| {
        let client = client.clone();
        async move {
            while measurement.goes_on() {
                client.lock("local").shared().await?.release().await?;
                measurement.count();
            }
            Ok(())
        }
    });
    rate.await
}

/// Grants on a key of this backend, with leases that tasks share and without.
///
/// # Errors
/// A failure of the backend.
pub async fn compare(backend: &'static str, url: &str, effort: Effort) -> Result<Local, Failure> {
    let shared = Client::connect(url).await?;
    let alone = Client::builder().sharing(false).connect(url).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..effort.pairs {
        for (client, rates) in [(&shared, &mut with), (&alone, &mut without)] {
            let rate = per_second(TASKS, effort.span, |_, measurement| {
                let client = client.clone();
                async move {
                    while measurement.goes_on() {
                        client.lock("local").await?.release().await?;
                        measurement.count();
                    }
                    Ok(())
                }
            });
            rates.push(rate.await?);
        }
    }
    Ok(Local { backend, tasks: TASKS, shared_per_s: median(with), alone_per_s: median(without) })
}
