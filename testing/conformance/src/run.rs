use crate::FixtureFactory;
use crate::case::Case;
use crate::cases;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::any::Any;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Cases mostly wait for leases to end.
const AT_ONCE: usize = 24;

/// Runs every case with every factory. Arguments and report are those of `cargo test`.
pub fn run(factories: Vec<FixtureFactory>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    libtest_mimic::run(&arguments, trials(factories)).exit_code()
}

/// One trial for each case and factory, named `factory::fact`.
pub fn trials(factories: Vec<FixtureFactory>) -> Vec<Trial> {
    let cases: Vec<_> = cases::all().into_iter().map(Arc::new).collect();
    let mut trials = Vec::new();
    for factory in factories.into_iter().map(Arc::new) {
        for case in &cases {
            let (name, factory, case) =
                (format!("{}::{}", factory.name(), case.name), Arc::clone(&factory), Arc::clone(case));
            trials.push(Trial::ignorable_test(name, move || run_case(&factory, &case)));
        }
    }
    trials
}

/// The `wanted` cases that fail for a factory, in any order. Tests use it to check that the suite detects faulty backends.
pub fn broken_facts(factory: &FixtureFactory, wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let cases: Vec<_> = cases::all().into_iter().filter(|case| wanted(case.name)).map(Arc::new).collect();
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // A failing case mostly waits for an event that never happens.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if run_case(factory, case).is_err() {
                        broken.lock().unwrap_or_else(PoisonError::into_inner).push(case.name);
                    }
                }
            });
        }
    });
    broken.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one case in its own runtime, so that a case that hangs or blocks does not affect the others.
fn run_case(factory: &FixtureFactory, case: &Arc<Case>) -> Result<Completion, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let fixture = {
        let _inside = runtime.enter();
        match factory.open() {
            Ok(fixture) => fixture,
            Err(why) => return Ok(Completion::ignored_with(format!("not here: {why}"))),
        }
    };
    let (case, deadline) = (Arc::clone(case), fixture.deadline());
    let played = runtime.block_on(async {
        let task = tokio::spawn(async move {
            let backend = fixture.backend().await;
            if let Some(why) = case.skipped(&*fixture, &*backend) {
                return Completion::ignored_with(why);
            }
            case.run(&*fixture).await;
            Completion::Completed
        });
        tokio::time::timeout(deadline, task).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match played {
        Ok(Ok(completion)) => Ok(completion),
        Ok(Err(failure)) => Err(failure.try_into_panic().map_or_else(Failed::from, |panic| words(&*panic).into())),
        Err(_) => Err(format!("not over after {deadline:?}").into()),
    }
}

/// The message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}
