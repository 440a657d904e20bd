use std::fmt;

/// Something that a batch of seeds must have come across, or it proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// A majority granted the same fence: one trip.
    EqualGrants,
    /// It granted different ones: a raise.
    Raise,
    /// A node refused a raise.
    RefusedRaise,
    /// A round was lost after its raise.
    Overtaken,
    /// A round was lost because others stand in the way.
    Busy,
    /// A round was lost because too few take part.
    Unreachable,
    /// A majority granted, and the lease was over by then.
    TooLate,
    /// A node in quarantine refused a claim.
    Quarantine,
    /// A claim ran twice, and the second found itself the holder.
    AskedTwice,
    /// A grant came for an attempt that was over, and was given back.
    LateGrant,
    /// A renewal was confirmed by a majority.
    Renewed,
    /// A renewal that could not tell.
    RenewalFailed,
    /// A majority said that the hold is gone.
    TakenAway,
    /// A lease ran out under its holder.
    Lapsed,
    /// A renewal was confirmed for a hold that had lapsed, and revived nothing.
    LateRenewal,
    /// The resource refused a write.
    GateRefusal,
    /// A node lost all it knew.
    Forgot,
    /// A node fell back to what it knew before.
    FellBack,
    /// A node came back with all it knew.
    Kept,
    /// A client died.
    ClientDied,
    /// The wall clock of a node was set.
    Jump,
    /// A node was cut off.
    Cut,
    /// A client was granted the key beside another holder.
    Together,
    /// A claim of permits found too few of them free.
    TooFewPermits,
    /// A writer became a reader.
    Downgraded,
    /// A downgrade was sent again, because its reply did not arrive.
    DowngradedAgain,
    /// A writer lost its hold while it waited for the reply to its downgrade.
    DowngradeLost,
}

impl Coverage {
    /// All that need a reader, a downgrade or permits.
    pub const OF_MODES: [Self; 5] =
        [Self::Together, Self::TooFewPermits, Self::Downgraded, Self::DowngradedAgain, Self::DowngradeLost];

    /// All others.
    pub const ALL: [Self; 22] = [
        Self::EqualGrants,
        Self::Raise,
        Self::RefusedRaise,
        Self::Overtaken,
        Self::Busy,
        Self::Unreachable,
        Self::TooLate,
        Self::Quarantine,
        Self::AskedTwice,
        Self::LateGrant,
        Self::Renewed,
        Self::RenewalFailed,
        Self::TakenAway,
        Self::Lapsed,
        Self::LateRenewal,
        Self::GateRefusal,
        Self::Forgot,
        Self::FellBack,
        Self::Kept,
        Self::ClientDied,
        Self::Jump,
        Self::Cut,
    ];
}

/// How often each was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoverageCounts([u64; Coverage::ALL.len() + Coverage::OF_MODES.len()]);

impl CoverageCounts {
    pub(super) const fn saw(&mut self, coverage: Coverage) {
        self.0[coverage as usize] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine += more;
        }
    }

    /// How often.
    pub const fn of(&self, coverage: Coverage) -> u64 {
        self.0[coverage as usize]
    }

    /// What was never seen.
    pub fn missing(&self) -> Vec<Coverage> {
        Coverage::ALL.into_iter().filter(|coverage| self.of(*coverage) == 0).collect()
    }
}

impl fmt::Display for CoverageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            Coverage::ALL.iter().map(|coverage| format!("{coverage:?} {}", self.of(*coverage))).collect();
        f.write_str(&all.join(", "))?;
        let of_modes = Coverage::OF_MODES.iter().filter(|coverage| self.of(**coverage) > 0);
        of_modes.into_iter().try_for_each(|coverage| write!(f, ", {coverage:?} {}", self.of(*coverage)))
    }
}
