//! All states, nearest first.

use crate::coverage::{self, Coverage, CoverageSet};
use crate::world::{Act, Rule, Setting, World};
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

pub(crate) struct Found {
    pub(crate) states: usize,
    covered: CoverageSet,
    /// What is broken, and the shortest way there.
    broken: Option<(String, Vec<Act>)>,
}

pub(crate) fn search(setting: &Setting) -> Found {
    let start = World::new(setting);
    let mut seen = HashSet::from([digest(&start)]);
    let mut ways: Vec<(usize, Option<Act>)> = vec![(0, None)];
    let mut next = VecDeque::from([(start, 0)]);
    let mut covered = CoverageSet::default();
    while let Some((world, number)) = next.pop_front() {
        for act in world.acts(setting) {
            let mut after = world.clone();
            if let Err(broken) = after.act(act, setting)
                && setting.seeks(&broken)
            {
                let mut way = way(&ways, number);
                way.push(act);
                return Found { states: seen.len(), covered, broken: Some((broken, way)) };
            }
            covered.extend(coverage::of(&world, act, &after));
            if seen.insert(digest(&after)) {
                next.push_back((after, ways.len()));
                ways.push((number, Some(act)));
            }
        }
    }
    Found { states: seen.len(), covered, broken: None }
}

/// Stands for a world: two worlds with one digest are as good as impossible in a search of millions.
fn digest(world: &World) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn way(ways: &[(usize, Option<Act>)], mut at: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    while let (before, Some(act)) = ways[at] {
        acts.push(act);
        at = before;
    }
    acts.reverse();
    acts
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
