//! What a search needs of a world, and the search: every state that can be reached, the nearest first.

use fencelock_search::Frontier;
use std::fmt::Debug;
use std::hash::Hash;

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

/// Searches from all these starts.
pub(crate) fn search<M: Model>(starts: impl Iterator<Item = (String, M)>) -> Result<Search, Damage> {
    let mut search = Search::default();
    let (names, starts): (Vec<_>, Vec<_>) = starts.unzip();
    let mut frontier = Frontier::new(starts);
    while let Some((world, number)) = frontier.visit() {
        let acts = world.acts();
        let checked = if acts.is_empty() { world.check_end() } else { world.check() };
        checked.map_err(|broken| {
            let (start, acts) = frontier.way(number);
            let acts = acts.iter().map(|act: &M::Act| format!("{act:?}"));
            Damage { broken, way: [names[start].clone()].into_iter().chain(acts).collect() }
        })?;
        search.ends += usize::from(acts.is_empty());
        search.raised += usize::from(world.is_raising());
        search.released += usize::from(world.is_released());
        for act in acts {
            let mut after = world.clone();
            after.act(act);
            frontier.add(after, number, act);
        }
    }
    search.states = frontier.states();
    Ok(search)
}
