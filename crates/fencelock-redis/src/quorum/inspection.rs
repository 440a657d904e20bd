//! Combines the replies of the nodes about the holder of a key.

use fencelock_core::{
    Expiry, FencingToken, HolderId, HolderInfo, Holding, Inspection, InspectionResult, Key, NodeFault, Occupant,
    Quorum as Size, Seen, Unknown,
};

/// The replies of all nodes about one key so far.
#[derive(Debug)]
pub(super) struct NodeInspections {
    size: Size,
    answers: Vec<Option<Result<Option<Holding>, Unknown>>>,
}

impl NodeInspections {
    pub(super) fn new(size: Size) -> Self {
        Self { size, answers: vec![None; size.nodes()] }
    }

    pub(super) fn on_reply(&mut self, node: usize, answer: Result<Option<Holding>, Unknown>) {
        self.answers[node] = Some(answer);
    }

    /// A node whose list does not contain the key reports it as free; a node without a list reports nothing.
    pub(super) fn on_list_reply(&mut self, node: usize, list: &Result<Vec<Holding>, Unknown>) {
        let answer = list.as_ref().map(|_| None).map_err(Clone::clone);
        self.answers[node].get_or_insert(answer);
    }

    pub(super) fn first_seen(&self) -> Option<&Holding> {
        self.holdings().next()
    }

    /// Whether further replies cannot change the result.
    pub(super) fn is_clear(&self) -> bool {
        match self.sight() {
            InspectionResult::Pending => false,
            InspectionResult::Held(occupant) => {
                matches!(occupant, Occupant::Foreign(_)) || self.fence_of(&occupant).is_some()
            }
            InspectionResult::Free | InspectionResult::Contested | InspectionResult::Unknown => true,
        }
    }

    pub(super) fn sight(&self) -> InspectionResult<Occupant> {
        let mut inspection = Inspection::new(self.size);
        let mut sight = InspectionResult::Pending;
        for (node, answer) in self.answers.iter().enumerate() {
            sight = match answer {
                None => continue,
                Some(Ok(Some(holding))) => inspection.vote(node, Seen::Held(holding.first().occupant.clone())),
                Some(Ok(None)) => inspection.vote(node, Seen::Free),
                Some(Err(_)) => inspection.vote(node, Seen::Unknown),
            };
        }
        sight
    }

    /// The holder of the key, by majority. Conflicting attempts without a majority do not hold it.
    pub(super) fn holding(&self, key: &Key) -> Result<Option<Holding>, Unknown> {
        match self.sight() {
            InspectionResult::Held(occupant) => Ok(Some(self.holding_of(key, occupant))),
            InspectionResult::Free | InspectionResult::Contested => Ok(None),
            InspectionResult::Unknown | InspectionResult::Pending => Err(self.causes()),
        }
    }

    fn holding_of(&self, key: &Key, occupant: Occupant) -> Holding {
        let ends = |expiry| match expiry {
            Expiry::In(left) => left,
            Expiry::Never => std::time::Duration::MAX,
        };
        let left = self.size.reached(self.holds_of(&occupant).map(|hold| ends(hold.expiry)));
        let expiry = left.filter(|left| *left != std::time::Duration::MAX).map_or(Expiry::Never, Expiry::In);
        let fence = self.fence_of(&occupant);
        let held_for = self.holds_of(&occupant).filter_map(|hold| hold.held_for).max();
        Holding::new(key.clone(), HolderInfo::new(occupant, expiry).with_fence(fence).with_held_for(held_for))
    }

    /// The token of a hold that a majority reports, if known: `Ok(None)` if there is no such hold.
    pub(super) fn fence_of_holder(&self, holder: HolderId) -> Result<Option<FencingToken>, Unknown> {
        let of_holder = self.holdings().find(|holding| holding.has(holder));
        let fence = of_holder.and_then(|holding| self.fence_of(&holding.first().occupant));
        let silent = self.answers.iter().filter(|answer| !matches!(answer, Some(Ok(_)))).count();
        let most = self.holdings().filter(|holding| holding.has(holder)).count();
        if fence.is_none() && silent > 0 && most + silent >= self.size.majority() {
            return Err(self.causes());
        }
        Ok(fence)
    }

    fn fence_of(&self, occupant: &Occupant) -> Option<FencingToken> {
        let fences: Vec<_> = self.holds_of(occupant).filter_map(|hold| hold.fence).collect();
        let names = |fence: &FencingToken| fences.iter().filter(|other| *other == fence).count();
        fences.iter().find(|fence| names(fence) >= self.size.majority()).copied()
    }

    fn holdings(&self) -> impl Iterator<Item = &Holding> {
        self.answers.iter().filter_map(|answer| match answer {
            Some(Ok(Some(holding))) => Some(holding),
            _ => None,
        })
    }

    fn holds_of<'a>(&'a self, occupant: &'a Occupant) -> impl Iterator<Item = &'a HolderInfo> {
        self.holdings().filter_map(move |holding| holding.hold_of(occupant))
    }

    fn causes(&self) -> Unknown {
        Unknown::of_nodes(
            self.answers.iter().filter_map(|answer| answer.as_ref()?.as_ref().err()).flat_map(faults).collect(),
        )
    }
}

pub(super) fn faults(unknown: &Unknown) -> Vec<NodeFault> {
    unknown.nodes().to_vec()
}
