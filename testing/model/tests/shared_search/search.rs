//! All states, nearest first.

use crate::coverage::{self, Coverage, CoverageSet};
use crate::world::{Act, Rule, Setting, World};
use fencelock_search::Frontier;

pub(crate) struct Found {
    pub(crate) states: usize,
    covered: CoverageSet,
    /// What is broken, and the shortest way there.
    broken: Option<(String, Vec<Act>)>,
}

pub(crate) fn search(setting: &Setting) -> Found {
    let mut frontier = Frontier::new([World::new(setting)]);
    let mut covered = CoverageSet::default();
    while let Some((world, number)) = frontier.visit() {
        for act in world.acts(setting) {
            let mut after = world.clone();
            if let Err(broken) = after.act(act, setting)
                && setting.seeks(&broken)
            {
                let (_, mut way) = frontier.way(number);
                way.push(act);
                return Found { states: frontier.states(), covered, broken: Some((broken, way)) };
            }
            covered.extend(coverage::of(&world, act, &after));
            frontier.add(after, number, act);
        }
    }
    Found { states: frontier.states(), covered, broken: None }
}

/// No promise is broken anywhere, and the search has reached what it is about.
#[track_caller]
pub(crate) fn holds(name: &str, setting: &Setting, covers: &[&[Coverage]]) {
    let found = search(setting);
    println!("{name}: {} states", found.states);
    if let Some((broken, way)) = found.broken {
        panic!("{name}: {broken}\n{way:#?}");
    }
    for what in covers.concat() {
        assert!(found.covered.contains(what), "{name}: the search never came across {what:?}");
    }
}

/// Without the rule this damage is done, at the earliest after so many acts. Other damage that comes before is ignored.
#[track_caller]
pub(crate) fn breaks(rule: Rule, setting: &Setting, damage: &'static str, acts: usize) {
    let found = search(&Setting { rule, sought: Some(damage), ..setting.clone() });
    let Some((broken, way)) = found.broken else { panic!("{rule:?}: no damage in {} states", found.states) };
    println!("{rule:?}: {broken} after {} acts, {} states\n  {way:?}", way.len(), found.states);
    assert_eq!(way.len(), acts, "{rule:?}: the shortest way is not the known one: {way:#?}");
}
