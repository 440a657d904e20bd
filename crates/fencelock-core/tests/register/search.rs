//! The search of all states of a [`World`], the nearest first.

use crate::world::{Action, Scope, Violation, World};
use fencelock_search::Frontier;

/// The result of a search.
pub(crate) struct Found {
    /// All that were reached.
    pub(crate) landmarks: u8,
    /// What is broken, and the shortest way to it, without the passing of time.
    pub(crate) broken: Option<(Violation, Vec<String>)>,
}

/// Visits every state until one breaks a promise.
pub(crate) fn search(scope: &Scope, limit: usize) -> Found {
    #[allow(clippy::disallowed_methods, reason = "how long a search took is for the reader, no lock depends on it")]
    let start = std::time::Instant::now();
    let mut frontier = Frontier::new([World::new(scope)]);
    let (mut broken, mut landmarks) = (None, 0);
    'search: while let Some((world, number)) = frontier.visit() {
        for action in world.actions(scope) {
            match world.step(action, scope) {
                Ok(next) => {
                    landmarks |= world.landmarks(action, &next);
                    frontier.add(next, number, action);
                }
                Err(violation) => {
                    let (_, mut way) = frontier.way(number);
                    way.push(action);
                    broken = Some((violation, retell(&way, scope)));
                    break 'search;
                }
            }
        }
        assert!(frontier.states() <= limit, "more than {limit} states: the search is not exhaustive");
        assert!(scope.flaw.is_some() || world.is_free_at_last(scope), "the key is never free again");
    }
    let (states, seconds) = (frontier.states(), start.elapsed().as_secs_f32());
    println!("{scope:?}\n  {states} states, {seconds:.1} s");
    if let Some((violation, way)) = &broken {
        for step in way {
            println!("    {step}");
        }
        println!("    => {violation}");
    }
    Found { landmarks, broken }
}

/// The steps of a way, in words.
fn retell(way: &[Action], scope: &Scope) -> Vec<String> {
    let (mut world, mut steps) = (World::new(scope), Vec::new());
    for action in way {
        if *action != Action::Tick {
            steps.push(format!("t={:<2} {}", world.tick, world.describe(*action, scope)));
        }
        match world.step(*action, scope) {
            Ok(next) => world = next,
            Err(_) => break,
        }
    }
    steps
}
