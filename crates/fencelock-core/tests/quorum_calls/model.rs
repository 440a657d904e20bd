//! What a search needs of a world.

use std::collections::HashSet;
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

#[derive(Default)]
pub(crate) struct Search {
    pub(crate) visited: HashSet<u64>,
    pub(crate) path: Vec<String>,
    pub(crate) ends: usize,
    pub(crate) raised: usize,
    pub(crate) released: usize,
}

impl Search {
    /// The first path to a state that breaks a rule.
    pub(crate) fn visit(&mut self, world: &impl Model) -> Result<(), String> {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !self.visited.insert(hasher.finish()) {
            return Ok(());
        }
        let acts = world.acts();
        let checked = if acts.is_empty() { world.check_end() } else { world.check() };
        checked.map_err(|broken| format!("{broken}\n  {}", self.path.join("\n  ")))?;
        self.ends += usize::from(acts.is_empty());
        self.raised += usize::from(world.is_raising());
        self.released += usize::from(world.is_released());
        for act in acts {
            let mut next = world.clone();
            self.path.push(format!("{act:?}"));
            next.act(act);
            self.visit(&next)?;
            self.path.pop();
        }
        Ok(())
    }
}
