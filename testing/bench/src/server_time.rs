//! The time that the server spends on each script, as it reports it, compared with an empty script.

use crate::Failure;
use crate::bare::{self, BareLock, CHANNEL, word};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

/// The number of rounds; the minimum counts, because the others include other load on the machine.
const ROUNDS: usize = 5;
/// The number of keys that are locked, renewed, waited for and released in a round, one after the other.
const KEYS: usize = 1000;
/// The number of keys with a queue of [`WAITING`] waiters.
const CROWDED: usize = 200;
const WAITING: usize = 64;

#[derive(Debug)]
pub(crate) struct ServerTime {
    pub(crate) what: &'static str,
    pub(crate) us: f64,
    pub(crate) times_empty: f64,
}

/// `url` is the URL of a server without other clients, because the server counts the commands of all.
pub(crate) async fn measure(url: &str) -> Result<Vec<ServerTime>, Failure> {
    let mut bench = ServerBench { connection: bare::connect(url).await?, round: 0, figures: Vec::new() };
    let mut wakes = redis::Client::open(url)?.get_async_pubsub().await?;
    wakes.subscribe(CHANNEL).await?;
    for script in BareLock::scripts() {
        script.prepare_invoke().load_async(&mut bench.connection).await?;
    }
    for round in 0..ROUNDS {
        bench.round = round;
        bench.floor().await?;
        bench.alone().await?;
        bench.crowded().await?;
    }
    let empty = bench.figures[0].1;
    Ok(bench.figures.into_iter().map(|(what, us)| ServerTime { what, us, times_empty: us / empty }).collect())
}

struct ServerBench {
    connection: MultiplexedConnection,
    round: usize,
    figures: Vec<(&'static str, f64)>,
}

impl ServerBench {
    /// The baselines: an empty script, and a lock without a library.
    async fn floor(&mut self) -> Result<(), Failure> {
        let nothing = self.known(&Script::new("return {'granted', '1', 1}")).await?;
        self.figure("an empty script", "granted", locks(self.round, "floor", KEYS), |lock| lock.command(&nothing))
            .await?;
        let set =
            |lock: &BareLock| redis::cmd("SET").arg(lock.key()).arg("mine").arg("NX").arg("PX").arg(30_000).clone();
        self.figure("`SET NX PX`", "OK", locks(self.round, "hand", KEYS), set).await?;
        let delete = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
        let delete = self.known(&Script::new(delete)).await?;
        let delete = |lock: &BareLock| lock.command(&delete).arg("mine").clone();
        self.figure("compare and delete", "1", locks(self.round, "hand", KEYS), delete).await
    }

    async fn alone(&mut self) -> Result<(), Failure> {
        let (first, second) = (holder(1), holder(2));
        let round = self.round;
        let locks = || locks(round, "alone", KEYS);
        self.figure("acquire a free lock", "granted", locks(), |lock| lock.acquire("try", &first)).await?;
        self.figure("renew it", "renewed", locks(), |lock| lock.renew(&first)).await?;
        self.figure("try, refused", "busy", locks(), |lock| lock.acquire("try", &second)).await?;
        self.figure("enqueue, first", "queued", locks(), |lock| lock.acquire("enqueue", &second)).await?;
        self.figure("release to the only waiter", "released", locks(), |lock| lock.release(&first)).await?;
        self.figure("release without waiters", "1", locks(), |lock| lock.release(&second)).await
    }

    async fn crowded(&mut self) -> Result<(), Failure> {
        let (owner, late) = (holder(0), holder(WAITING + 1));
        let round = self.round;
        let locks = || locks(round, "crowded", CROWDED);
        self.all("granted", locks(), |lock| lock.acquire("try", &owner)).await?;
        for waiter in 1..=WAITING {
            let waiter = holder(waiter);
            self.all("queued", locks(), |lock| lock.acquire("enqueue", &waiter)).await?;
        }
        self.figure("enqueue, 65th", "queued", locks(), |lock| lock.acquire("enqueue", &late)).await?;
        self.figure("release to the first of 65", "released", locks(), |lock| lock.release(&owner)).await
    }

    async fn known(&mut self, script: &Script) -> Result<String, Failure> {
        Ok(script.prepare_invoke().load_async(&mut self.connection).await?)
    }

    async fn figure(
        &mut self,
        what: &'static str,
        expected: &str,
        locks: Vec<BareLock>,
        command: impl Fn(&BareLock) -> Cmd,
    ) -> Result<(), Failure> {
        redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut self.connection).await?;
        self.all(expected, locks, command).await?;
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut self.connection).await?;
        let spent = ["evalsha", "set"].iter().find_map(|name| spent_per_call(&info, name));
        let spent = spent.ok_or("the server does not report the time of its commands")?;
        match self.figures.iter_mut().find(|(known, _)| *known == what) {
            Some((_, least)) => *least = spent.min(*least),
            None => self.figures.push((what, spent)),
        }
        Ok(())
    }

    /// Sequentially, as clients do; each reply must match.
    async fn all(
        &mut self,
        expected: &str,
        locks: Vec<BareLock>,
        command: impl Fn(&BareLock) -> Cmd,
    ) -> Result<(), Failure> {
        for lock in locks {
            let word = word(&command(&lock).query_async(&mut self.connection).await?)?;
            if word != expected {
                return Err(format!("{word} instead of {expected}").into());
            }
        }
        Ok(())
    }
}

fn locks(round: usize, name: &str, count: usize) -> Vec<BareLock> {
    (0..count).map(|index| BareLock::new(&format!("{name}-{round}-{index}"))).collect()
}

fn holder(number: usize) -> String {
    format!("{number:032x}")
}

/// Microseconds from a line `cmdstat_NAME:calls=1,usec=2,usec_per_call=2.00,...`. The time of a script includes its calls.
fn spent_per_call(info: &str, name: &str) -> Option<f64> {
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name)?.strip_prefix(':'))?;
    line.split(',').find_map(|field| field.strip_prefix("usec_per_call=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_not_confused_with_a_longer_name() {
        let info = "cmdstat_setex:calls=1,usec=9,usec_per_call=9.00\r\ncmdstat_set:calls=4,usec=10,usec_per_call=2.50,failed_calls=0\r\n";
        assert_eq!(spent_per_call(info, "set"), Some(2.5));
        assert_eq!(spent_per_call(info, "evalsha"), None);
    }
}
