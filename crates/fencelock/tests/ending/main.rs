//! How programs end, and what a forked child does. Each of these is a process of its own: this binary, run again with a
//! program to be.
#![allow(clippy::unwrap_used)]

mod ends;
mod forks;
mod program;

use libtest_mimic::{Arguments, Trial};

fn main() {
    if let Some(name) = program::name() {
        let programs = ends::PROGRAMS.iter().chain(forks::PROGRAMS);
        let (_, program) = programs.into_iter().find(|(known, _)| *known == name).expect("a program");
        // From here on it ends as any program does.
        return program();
    }
    let trial = |(name, test): &(&'static str, fn())| {
        let test = *test;
        Trial::test(*name, move || {
            test();
            Ok(())
        })
    };
    let trials = ends::TESTS.iter().chain(forks::TESTS).map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
