//! What a search needs of a world, and the search: every state that can be reached, the nearest first.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

pub(crate) trait Model: Clone + Hash {
    type Act: Debug + Copy;

    /// What can happen next.
    fn acts(&self) -> Vec<Self::Act>;
    fn act(&mut self, act: Self::Act);
    fn check(&self) -> Result<(), String>;
    /// The check of a state in which nothing happens any more.
    fn check_end(&self) -> Result<(), String>;
    fn is_raising(&self) -> bool;
    fn is_released(&self) -> bool;
}

/// What a search has come across.
#[derive(Default)]
pub(crate) struct Search {
    pub(crate) states: usize,
    pub(crate) ends: usize,
    pub(crate) raised: usize,
    pub(crate) released: usize,
}

/// What is broken, and the shortest way there, which begins with the name of a start.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) broken: String,
    pub(crate) way: Vec<String>,
}

impl Damage {
    pub(crate) fn acts(&self) -> usize {
        self.way.len() - 1
    }
}

/// How a state was reached: from another one, or as a start.
enum Way<A> {
    Start(String),
    After(usize, A),
}

/// Searches from all these starts.
pub(crate) fn search<M: Model>(starts: impl Iterator<Item = (String, M)>) -> Result<Search, Damage> {
    let mut search = Search::default();
    let (mut seen, mut ways, mut next) = (HashSet::new(), Vec::new(), VecDeque::new());
    for (name, world) in starts {
        if seen.insert(digest(&world)) {
            next.push_back((world, ways.len()));
            ways.push(Way::Start(name));
        }
    }
    while let Some((world, number)) = next.pop_front() {
        let acts = world.acts();
        let checked = if acts.is_empty() { world.check_end() } else { world.check() };
        checked.map_err(|broken| Damage { broken, way: retrace(&ways, number) })?;
        search.ends += usize::from(acts.is_empty());
        search.raised += usize::from(world.is_raising());
        search.released += usize::from(world.is_released());
        for act in acts {
            let mut after = world.clone();
            after.act(act);
            if seen.insert(digest(&after)) {
                next.push_back((after, ways.len()));
                ways.push(Way::After(number, act));
            }
        }
    }
    search.states = ways.len();
    Ok(search)
}

fn digest(world: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

fn retrace<A: Debug>(ways: &[Way<A>], mut at: usize) -> Vec<String> {
    let mut way = Vec::new();
    while let Way::After(before, act) = &ways[at] {
        way.push(format!("{act:?}"));
        at = *before;
    }
    if let Way::Start(name) = &ways[at] {
        way.push(name.clone());
    }
    way.reverse();
    way
}
