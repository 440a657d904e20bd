//! Combines the replies of the nodes about the holder of a key.

use fencelock_core::{
    Expiry, FencingToken, HolderInfo, Holding, InspectionResult, Key, Mode, Occupant, Quorum as Size, Seen, Unknown,
};

/// The replies of all nodes about one key so far.
#[derive(Debug)]
pub(crate) struct NodeInspections {
    size: Size,
    answers: Vec<Option<Result<Option<Holding>, Unknown>>>,
}

impl NodeInspections {
    pub(crate) fn new(size: Size) -> Self {
        Self { size, answers: vec![None; size.nodes()] }
    }

    pub(crate) fn on_reply(&mut self, node: usize, answer: Result<Option<Holding>, Unknown>) {
        self.answers[node] = Some(answer);
    }

    /// A node whose list does not contain the key reports it as free; a node without a list reports nothing.
    pub(crate) fn on_list_reply(&mut self, node: usize, list: &Result<Vec<Holding>, Unknown>) {
        let answer = list.as_ref().map(|_| None).map_err(Clone::clone);
        self.answers[node].get_or_insert(answer);
    }

    /// Whether further replies cannot change the result.
    pub(crate) fn is_clear(&self) -> bool {
        match self.sight() {
            InspectionResult::Pending => false,
            InspectionResult::Held { holders, .. } => holders
                .iter()
                .all(|occupant| matches!(occupant, Occupant::Foreign(_)) || self.fence_of(occupant).is_some()),
            InspectionResult::Free | InspectionResult::Contested | InspectionResult::Unknown => true,
        }
    }

    pub(crate) fn sight(&self) -> InspectionResult<Occupant> {
        let seen = self.answers.iter().flatten().map(|answer| match answer {
            Ok(Some(holding)) => held(holding),
            Ok(None) => Seen::Free,
            Err(_) => Seen::Unknown,
        });
        InspectionResult::of(self.size, &seen.collect::<Vec<_>>())
    }

    /// The holders of the key, by majority. Attempts without a majority do not hold it.
    pub(crate) fn holding(&self, key: &Key) -> Result<Option<Holding>, Unknown> {
        match self.sight() {
            InspectionResult::Held { holders, unnamed } => {
                let mut infos = holders.into_iter().map(|occupant| self.info_of(occupant));
                let first = infos.next().map(|first| Holding::new(key.clone(), first));
                Ok(first.map(|first| {
                    let mut holding = infos.fold(first, Holding::with_holder);
                    holding.holders = holding.holders.and_unnamed(unnamed);
                    holding
                }))
            }
            InspectionResult::Free | InspectionResult::Contested => Ok(None),
            InspectionResult::Unknown | InspectionResult::Pending => Err(self.causes()),
        }
    }

    fn info_of(&self, occupant: Occupant) -> HolderInfo {
        let ends = |expiry| match expiry {
            Expiry::In(left) => left,
            Expiry::Never => std::time::Duration::MAX,
        };
        let left = self.size.reached(self.holds_of(&occupant).map(|hold| ends(hold.expiry)));
        let expiry = left.filter(|left| *left != std::time::Duration::MAX).map_or(Expiry::Never, Expiry::In);
        let fence = self.fence_of(&occupant);
        let held_for = self.holds_of(&occupant).filter_map(|hold| hold.held_for).max();
        let mode = self.mode_of(&occupant);
        HolderInfo::new(occupant, expiry).with_mode(mode).with_fence(fence).with_held_for(held_for)
    }

    /// The mode that most nodes report. A node that missed a downgrade still reports a writer.
    fn mode_of(&self, occupant: &Occupant) -> Mode {
        let modes: Vec<_> = self.holds_of(occupant).map(|hold| hold.mode).collect();
        let reports = |mode: &&Mode| modes.iter().filter(|other| other == mode).count();
        modes.iter().max_by_key(reports).copied().unwrap_or_default()
    }

    fn fence_of(&self, occupant: &Occupant) -> Option<FencingToken> {
        let fences: Vec<_> = self.holds_of(occupant).filter_map(|hold| hold.fence).collect();
        let names = |fence: &FencingToken| fences.iter().filter(|other| *other == fence).count();
        fences.iter().find(|fence| names(fence) >= self.size.majority()).copied()
    }

    pub(crate) fn holdings(&self) -> impl Iterator<Item = &Holding> {
        self.answers.iter().filter_map(|answer| match answer {
            Some(Ok(Some(holding))) => Some(holding),
            _ => None,
        })
    }

    fn holds_of<'a>(&'a self, occupant: &'a Occupant) -> impl Iterator<Item = &'a HolderInfo> {
        self.holdings().filter_map(move |holding| holding.hold_of(occupant))
    }

    /// Why too few nodes answered. If the answers of the others are no majority, they are part of it.
    fn causes(&self) -> Unknown {
        let silent = self.answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err());
        let mut faults: Vec<_> = silent.flat_map(Unknown::nodes).cloned().collect();
        let holders: Vec<_> =
            self.holdings().map(|holding| holding.holders.clone().map(|hold| hold.occupant).to_string()).collect();
        if let (false, [.., last]) = (holders.is_empty(), &mut *faults) {
            let free = self.answers.iter().filter(|answer| matches!(answer, Some(Ok(None)))).count();
            let but = if last.detail.is_empty() { "" } else { "; " };
            let holders = holders.join(" on one, by ");
            last.detail = format!("{}{but}the others disagree: held by {holders} on one, free on {free}", last.detail);
        }
        Unknown::of_nodes(faults)
    }
}

fn held(holding: &Holding) -> Seen<Occupant> {
    let holders: Vec<_> = holding.holders.iter().map(|hold| hold.occupant.clone()).collect();
    let listed = u32::try_from(holders.len()).unwrap_or(u32::MAX);
    Seen::Held { unnamed: holding.holders.count().saturating_sub(listed), holders }
}
