//! A lock on a store of objects, against one read of an object there. The store is named by `FENCELOCK_OBJECTS`; without it, one in this
//! process stands for it.

use crate::report::percentile;
use crate::{Failure, with_arguments};
use fencelock::backends::connect;
use fencelock::contract::{Acquire, Release, Renew, Renewal};
use fencelock::{Backend, Client};
use fencelock_testkit::{ObjectServer, claim};
use std::env;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest pauses of a waiter: `poll=`.
const POLLS: [u64; 2] = [200, 2000];
const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct OnObjects {
    steps: Vec<Span>,
    hand_offs: Vec<Span>,
}

/// How long something takes, in microseconds.
#[derive(Debug)]
struct Span {
    of: String,
    times: usize,
    p50_us: f64,
    p90_us: f64,
    /// Of the medians: to one read, and for a hand-off to `poll=`.
    ratio: f64,
}

impl Span {
    fn of(name: &str, mut spans: Vec<u64>) -> Self {
        let (p50_us, p90_us) = (percentile(&mut spans, 50.0), percentile(&mut spans, 90.0));
        Self { of: name.to_owned(), times: spans.len(), p50_us, p90_us, ratio: f64::NAN }
    }

    fn against(self, base_us: f64) -> Self {
        Self { ratio: self.p50_us / base_us, ..self }
    }
}

/// Measures, and prints a table.
pub fn main() -> ExitCode {
    with_arguments(|effort| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        // It ends with this process.
        let here = || ObjectServer::start().url("locks/bench", "");
        let url = env::var("FENCELOCK_OBJECTS").unwrap_or_else(|_| here());
        runtime.block_on(async {
            let steps = steps(&url, if effort.is_quick() { 20 } else { 200 }).await?;
            let mut hand_offs = Vec::new();
            for poll in POLLS {
                hand_offs.push(hand_off(&url, poll, if effort.is_quick() { 3 } else { 20 }).await?);
            }
            Ok(OnObjects { steps, hand_offs })
        })
    })
}

/// The steps of a client that has claimed before, in turn.
async fn steps(url: &str, times: usize) -> Result<Vec<Span>, Failure> {
    let backend: Arc<dyn Backend> = connect(url).await?;
    let names = ["a read", "an acquire", "a renewal", "a release", "an acquire of the key that was used last"];
    let mut spans = names.map(|_| Vec::new());
    // The first claim asks the store whether it honours conditions.
    for round in 0..=times {
        let mut taken = Vec::new();
        let key = format!("bench-{}-{round}", std::process::id());
        let (first, second) = (claim(&key, LONG), claim(&key, LONG));
        let renewals = [Renewal::new(first.key.clone(), first.holder.id, first.ttl)];
        timed(&mut taken, backend.inspect(&first.key)).await?;
        let granted = timed(&mut taken, backend.acquire(&first)).await.answer?;
        let renewed = timed(&mut taken, backend.renew(&renewals)).await;
        let [Ok(Renew::Renewed { .. })] = renewed[..] else { return Err(format!("{renewed:?}").into()) };
        let released = timed(&mut taken, backend.release(&first.key, &first.holder.id)).await?;
        let again_granted = timed(&mut taken, backend.acquire(&second)).await.answer?;
        let (Acquire::Granted { .. }, Acquire::Granted { .. }) = (granted, again_granted) else {
            return Err("it is free".into());
        };
        let again = backend.release(&second.key, &second.holder.id).await?;
        if (released, again) != (Release::Released, Release::Released) {
            return Err("it was held".into());
        }
        if round > 0 {
            for (spans, taken) in spans.iter_mut().zip(taken) {
                spans.push(u64::try_from(taken.as_micros())?);
            }
        }
    }
    let spans: Vec<Span> = names.iter().zip(spans).map(|(name, spans)| Span::of(name, spans)).collect();
    let read = spans[0].p50_us;
    Ok(spans.into_iter().map(|span| span.against(read)).collect())
}

/// Waits for this, and notes how long it took.
async fn timed<T>(taken: &mut Vec<Duration>, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    taken.push(begun.elapsed());
    done
}

/// From the sending of the release to the return of the acquire of another client, which has waited for at least a second.
async fn hand_off(url: &str, poll: u64, times: u32) -> Result<Span, Failure> {
    let url = format!("{url}{}poll={poll}ms", if url.contains('?') { '&' } else { '?' });
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let mut spans = Vec::new();
    let mut guard = clients[0].lock("hand-off").ttl(LONG).acquire().await?;
    for round in 0..times {
        let lock = clients[(round as usize + 1) % 2].lock("hand-off").ttl(LONG).wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) });
        // A different part of its pause has passed each time.
        tokio::time::sleep(Duration::from_millis(2500 + u64::from(round) * poll / u64::from(times))).await;
        let begun = Instant::now();
        guard.release().await?;
        let (started, next) = waiter.await??;
        spans.push(u64::try_from((started - begun).as_micros())?);
        guard = next;
    }
    guard.release().await?;
    Ok(Span::of(&format!("a hand-off with poll={poll}ms"), spans).against(f64::from(u32::try_from(poll)?) * 1e3))
}

impl fmt::Display for OnObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Span { of, times, p50_us, p90_us, ratio } in self.steps.iter().chain(&self.hand_offs) {
            let [p50, p90] = [p50_us, p90_us].map(|us| us / 1e3);
            writeln!(f, "{of}: {p50:.1} ms, p90 {p90:.1} ms ({times} times; {ratio:.2})")?;
        }
        Ok(())
    }
}
