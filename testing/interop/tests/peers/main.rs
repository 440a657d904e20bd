//! fencelock and the lock libraries of other languages on one key.

mod environment;
mod facts;
mod fleet;

use environment::TestEnvironment;
use fencelock_interop::{KNOWN, Peer, Process, Servers, Shares};
use fencelock_testkit::{RedisServer, StartError};
use fleet::Fleet;
use libtest_mimic::{Arguments, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// The name of a fact and its check.
macro_rules! facts {
    ($peer:expr, $($fact:ident),+ $(,)?) => {
        vec![$(trial(format!("{}::{}", $peer.name, stringify!($fact)), move || on_stage(&$peer, async |environment, process| {
            facts::$fact(environment, process).await;
        }))),+]
    };
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Err(missing) = redis() {
        eprintln!("SKIPPED all peers: {}", missing.reason_to_skip());
        return ExitCode::SUCCESS;
    }
    let mut trials: Vec<_> = KNOWN.into_iter().flat_map(of).collect();
    trials.extend(fleets());
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test for each number of servers and each prefix, and the controls without a common key.
fn fleets() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (servers, name) in [(Servers::One, "on_one_server"), (Servers::Five, "on_five_servers")] {
        let presets = KNOWN.into_iter().filter(|peer| peer.servers == servers && peer.command().is_ok());
        for preset in presets.filter_map(|peer| peer.preset) {
            let library = preset.compat.split(':').next().unwrap_or_default().replace('-', "_");
            let fact = format!("fleet::{name}_with_{library}_nothing_is_lost");
            trials.push(trial(fact, move || run(fleet::loses_nothing(Fleet::with(servers, Some(preset))))));
        }
        let fact = format!("fleet::{name}_nothing_is_lost");
        trials.push(trial(fact, move || run(fleet::loses_nothing(Fleet::of(servers)))));
    }
    let control = || run(fleet::without_a_common_key_increments_are_lost());
    trials.push(trial("fleet::without_a_common_key_increments_are_lost".into(), control));
    trials
}

fn redis() -> Result<(), StartError> {
    RedisServer::start().map(drop)
}

/// The facts of one peer; or a single skipped test if it is not installed.
fn of(peer: Peer) -> Vec<Trial> {
    match peer.command() {
        Ok(_) if peer.shares == Shares::Exclusion => facts![
            peer,
            while_they_hold_we_are_refused,
            their_release_wakes_our_waiter,
            while_we_hold_they_are_refused,
            our_release_wakes_their_waiter,
        ],
        Ok(_) => facts![
            peer,
            while_they_hold_we_are_refused,
            their_release_wakes_our_waiter,
            their_late_release_does_not_free_our_lock,
            while_we_hold_they_are_refused,
            our_release_wakes_their_waiter,
            after_our_crash_they_acquire_the_lock_when_the_ttl_ends,
            a_foreign_delete_is_reported_as_a_loss,
            our_late_release_does_not_free_their_lock,
        ],
        Err(missing) => vec![absent(peer, missing)],
    }
}

fn absent(peer: Peer, missing: String) -> Trial {
    let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
    if peer.plain && required {
        return Trial::test(format!("{}::is_installed", peer.name), || Err(Failed::from(missing)));
    }
    eprintln!("SKIPPED {}: {missing}", peer.name);
    Trial::test(format!("{}::is_installed", peer.name), || Ok(())).with_ignored_flag(true)
}

fn trial(name: String, check: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        catch_unwind(AssertUnwindSafe(check)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Failed::from(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked"))
        })
    })
}

fn on_stage(peer: &Peer, fact: impl AsyncFnOnce(&TestEnvironment, Process)) {
    run(async {
        let environment = TestEnvironment::of(peer.servers, peer.preset).await;
        let process = environment.peer(peer).await;
        fact(&environment, process).await;
    });
}

fn run(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(check);
}
