//! Runs the conformance suite on the Leases of an API server, and elections beside client-go. `scripts/test-servers kube` builds the
//! servers; `FENCELOCK_KUBE` names the directory with them.
#![allow(missing_docs, clippy::unwrap_used)]

mod facts;

use facts::admin;
use fencelock_conformance::{Fixture, FixtureFactory, trials};
use fencelock_core::{Backend, BoxFuture};
use fencelock_testkit::KubeCluster;
use libtest_mimic::Arguments;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Cases that measure spans of less than a second by the clock of the store, which tells whole seconds; and one with more polls than an
/// API server answers in time if it shares two processors with the test. There is another one with eight threads.
const LEFT_OUT: [&str; 5] = [
    "::a_renewed_lease_lasts_a_full_ttl_from_the_request",
    "::the_time_of_the_backend_passes",
    "::a_hold_shows_its_duration_if_it_is_known",
    "::a_hold_shows_its_last_renewal_if_it_is_known",
    "::sixty_four_tasks_lose_no_increment",
];

struct Namespace(Arc<KubeCluster>);

impl Fixture for Namespace {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        let locks = admin(&self.0);
        Box::pin(async { Arc::new(locks) as _ })
    }

    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        // The server tells seconds, which it cuts off twice.
        self.let_time_pass(span + Duration::from_millis(2100))
    }
}

fn main() -> ExitCode {
    // It ends the process if they are wrong.
    let arguments = Arguments::from_args();
    let Some(cluster) = KubeCluster::start_or_skip().map(Arc::new) else { return ExitCode::SUCCESS };
    let factory = FixtureFactory::new("kube", {
        let cluster = Arc::clone(&cluster);
        move || Ok(Box::new(Namespace(Arc::clone(&cluster))))
    });
    println!("left out: {LEFT_OUT:?}");
    let applies = |name: &str| !LEFT_OUT.iter().any(|left_out| name.ends_with(left_out));
    let mut trials: Vec<_> = trials(vec![factory]).into_iter().filter(|trial| applies(trial.name())).collect();
    trials.extend(facts::trials(&cluster));
    libtest_mimic::run(&arguments, trials).exit_code()
}
