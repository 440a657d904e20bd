//! What an uncontended cycle costs the server, all of it: reading the requests, carrying them out, writing the replies. Against the
//! lock that is written by hand.

use crate::bare::BareLock;
use crate::report::machine;
use crate::{Effort, Failure, with_arguments};
use fencelock_redis::lock_scripts;
use fencelock_testkit::{RedisServer, Reply, RespClient};
use redis::Cmd;
use std::fmt;
use std::process::ExitCode;

/// Requests under way at once, all on one connection.
const BATCH: usize = 16;
/// A round is short, so that some rounds are not disturbed.
const BATCHES: usize = 150;
const ROUNDS: usize = 60;
const ROUNDS_QUICK: usize = 10;

/// The holder of every lock here.
const HOLDER: &str = "abababababababababababababababab";
const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// Processor time of the server for a cycle, in microseconds: the least of all rounds.
#[derive(Debug)]
struct ServerCpu {
    machine: String,
    by_hand_us: f64,
    alone_us: f64,
    together_us: f64,
    /// Of `together_us` and `by_hand_us`.
    ratio: f64,
}

/// One kind of lock: the requests that take sixteen of them and that release them.
///
/// A batch is one write, so that the server reads it at once, however fast this client is.
struct Cycle {
    requests: [(Vec<u8>, &'static str); 2],
    /// In how many replies the server answers a batch.
    replies: usize,
}

impl Cycle {
    /// `SET NX PX`, and a script that compares and deletes.
    fn by_hand(delete: &str) -> Self {
        let value = format!("{HOLDER} bench:1");
        let key = |number| format!("hand-{number}");
        let set = |number| redis::cmd("SET").arg(key(number)).arg(&value).arg("NX").arg("PX").arg(30_000).clone();
        let delete = |number| redis::cmd("EVALSHA").arg(delete).arg(1).arg(key(number)).arg(&value).clone();
        Self { requests: [(batch(set), "OK"), (batch(delete), "1")], replies: BATCH }
    }

    /// One script for each request.
    fn alone() -> Self {
        let lock = |number| BareLock::new(&format!("lock-{number}"));
        let acquire = batch(|number| lock(number).acquire("try", HOLDER));
        let requests = [(acquire, "granted"), (batch(|number| lock(number).release(HOLDER)), "1")];
        Self { requests, replies: BATCH }
    }

    /// One script for all requests, as the client sends those that are made at the same time.
    fn together(script: &str) -> Self {
        let names = |sides: &[&str]| -> Vec<String> {
            let locks = (0..BATCH).map(|number| format!("lock-{number}"));
            let side =
                |side: &str| locks.clone().map(|lock| format!("fencelock:{{{lock}}}:{side}")).collect::<Vec<_>>();
            locks.clone().chain(sides.iter().flat_map(|name| side(name))).collect()
        };
        let call = |keys: Vec<String>| redis::cmd("EVALSHA").arg(script).arg(keys.len()).arg(keys).clone();
        let (mut acquire, mut release) = (call(names(&["line", "fence"])), call(names(&["line"])));
        acquire.arg(0);
        release.arg(BATCH);
        for _ in 0..BATCH {
            acquire.arg(format!("{HOLDER} bench:1")).arg(30_000).arg(1);
            release.arg(format!("{HOLDER} "));
        }
        Self { requests: [(acquire.get_packed_command(), "granted"), (release.get_packed_command(), "1")], replies: 1 }
    }

    /// Processor time of the server for one cycle in a round of them.
    fn round(&self, client: &mut RespClient) -> Result<f64, Failure> {
        let before = used(client)?;
        for _ in 0..BATCHES {
            for (requests, expected) in &self.requests {
                client.send_written(requests)?;
                for _ in 0..self.replies {
                    match client.receive() {
                        Reply::Array(all) if self.replies == 1 => {
                            all.iter().try_for_each(|one| expect(one, expected))?;
                        }
                        reply => expect(&reply, expected)?,
                    }
                }
            }
        }
        let cycles = u32::try_from(BATCHES * BATCH).map(f64::from)?;
        Ok((used(client)? - before) * 1e6 / cycles)
    }
}

fn batch(request: impl Fn(usize) -> Cmd) -> Vec<u8> {
    (0..BATCH).flat_map(|number| request(number).get_packed_command()).collect()
}

/// Seconds of user and system time.
fn used(client: &mut RespClient) -> Result<f64, Failure> {
    let info = client.command(&["INFO", "cpu"]);
    let info = info.text().unwrap_or_default();
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    field("used_cpu_user:")
        .zip(field("used_cpu_sys:"))
        .map(|(user, system)| user + system)
        .ok_or_else(|| "the server does not report its processor time".into())
}

fn expect(reply: &Reply, expected: &str) -> Result<(), Failure> {
    let is_expected = match reply {
        Reply::Array(words) => words.first().and_then(Reply::text) == Some(expected),
        // The token of an acquire.
        Reply::Int(2..) => expected == "granted",
        Reply::Int(number) => number.to_string() == expected,
        reply => reply.text() == Some(expected),
    };
    if is_expected { Ok(()) } else { Err(format!("{reply:?} instead of {expected}").into()) }
}

/// Starts the server of the tests, measures, and prints a table.
pub fn main() -> ExitCode {
    with_arguments(measure)
}

fn measure(effort: Effort) -> Result<ServerCpu, Failure> {
    let server = RedisServer::start()?;
    let mut client = server.connect()?;
    let [acquire, _, release, combined] = lock_scripts();
    let mut load = |script: &str| client.command(&["SCRIPT", "LOAD", script]).text().map(str::to_owned);
    let loaded = [acquire, release, DELETE, combined].map(&mut load);
    let [Some(_), Some(_), Some(delete), Some(combined)] = loaded else {
        return Err("the server takes no scripts".into());
    };
    let cycles = [Cycle::by_hand(&delete), Cycle::alone(), Cycle::together(&combined)];
    let mut least = [f64::INFINITY; 3];
    for _ in 0..if effort.is_quick() { ROUNDS_QUICK } else { ROUNDS } {
        for (cycle, least) in cycles.iter().zip(&mut least) {
            *least = least.min(cycle.round(&mut client)?);
        }
    }
    let ([by_hand_us, alone_us, together_us], machine) = (least, machine(&server));
    Ok(ServerCpu { machine, by_hand_us, alone_us, together_us, ratio: together_us / by_hand_us })
}

impl fmt::Display for ServerCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, by_hand_us, alone_us, together_us, ratio } = self;
        writeln!(f, "{machine}\n")?;
        writeln!(f, "Processor time of the server for an uncontended acquire + release, {BATCH} requests under way")?;
        writeln!(
            f,
            "| by hand, us | one script each, us | / by hand | together, us | / by hand |\n|---:|---:|---:|---:|---:|"
        )?;
        let alone = alone_us / by_hand_us;
        writeln!(f, "| {by_hand_us:.1} | {alone_us:.1} | {alone:.2} | {together_us:.1} | {ratio:.2} |")
    }
}
