//! What a scheme keeps, and what it breaks under which fault.

use crate::explore::{Explored, explore};
use crate::fault::{Fault, Faults};
use crate::model::state::Action;
use crate::property::Property;
use crate::scheme::Scheme;

/// One search: the faults that could happen, and what it found.
#[derive(Debug, Clone)]
struct Search {
    faults: Faults,
    found: Explored,
}

/// Everything that was found out about a scheme.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The scheme.
    pub scheme: Scheme,
    /// With no fault, and with each alone.
    searches: Vec<Search>,
    /// For each property, all faults at once that do not break it alone; if that breaks it, the fewest of them that do.
    together: Vec<(Property, Search)>,
}

/// How a property fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It holds in each of so many states, under every fault of the scheme, one at a time and all together.
    Holds {
        /// The states of the largest search.
        states: usize,
    },
    /// It can be broken.
    Breaks {
        /// The mildest fault that it takes; `None` if it takes none.
        fault: Option<Fault>,
        /// The fewest steps.
        steps: usize,
    },
    /// No fault breaks it alone, but several together do.
    BreaksTogether {
        /// The fewest.
        faults: Faults,
        /// The fewest steps.
        steps: usize,
    },
}

impl Verdict {
    /// Searches a scheme with no fault, with each of its faults, and with all those together that break nothing alone.
    pub fn of(scheme: Scheme) -> Self {
        let search = |faults: Faults| Search { faults, found: explore(&scheme, faults) };
        let each = std::iter::once(None).chain(scheme.faults.iter().copied().map(Some));
        let searches: Vec<_> = each.map(|fault| search(fault.into())).collect();
        let mut known: Vec<Search> = Vec::new();
        let mut together = Vec::new();
        for property in Property::ALL {
            let harmless = searches.iter().filter(|search| search.found.way(property).is_none());
            let faults: Faults = harmless.flat_map(|search| search.faults.iter()).collect();
            let all = known.iter().find(|search| search.faults == faults).cloned().unwrap_or_else(|| search(faults));
            let is_broken = |search: &Search| search.found.way(property).is_some();
            let fewest = is_broken(&all).then(|| faults.subsets().map(search).find(is_broken)).flatten();
            together.push((property, fewest.unwrap_or_else(|| all.clone())));
            known.push(all);
        }
        Self { scheme, searches, together }
    }

    /// How a property fares.
    pub fn finding(&self, property: Property) -> Finding {
        let alone = self.searches.iter().find_map(|search| Some((search.faults, search.found.way(property)?)));
        if let Some((faults, way)) = alone {
            return Finding::Breaks { fault: faults.iter().next(), steps: way.len() };
        }
        let Search { faults, found } = self.of_several(property);
        match found.way(property) {
            Some(way) => Finding::BreaksTogether { faults: *faults, steps: way.len() },
            None => Finding::Holds { states: found.states },
        }
    }

    /// The search with several faults that do not break a property alone.
    fn of_several(&self, property: Property) -> &Search {
        let found = self.together.iter().find(|(this, _)| *this == property);
        &found.expect("every property was searched").1
    }

    /// The faults that were searched, in order; the first is none.
    pub fn faults(&self) -> impl Iterator<Item = Option<Fault>> + '_ {
        self.searches.iter().map(|search| search.faults.iter().next())
    }

    /// The fewest steps to break `property` when these faults may happen; `None` if it holds, or was not searched with them.
    pub fn steps(&self, property: Property, faults: impl Into<Faults>) -> Option<usize> {
        self.way(property, faults.into()).map(<[Action]>::len)
    }

    pub(crate) fn way(&self, property: Property, faults: Faults) -> Option<&[Action]> {
        let several = (faults.count() > 1).then(|| self.of_several(property));
        self.searches.iter().chain(several).find(|search| search.faults == faults)?.found.way(property)
    }

    /// Everything that breaks it: which property, under which faults, in how many steps. Several faults break it together
    /// where none does alone.
    pub fn exhibits(&self) -> Vec<(Property, Faults, usize)> {
        let alone = self.searches.iter().flat_map(|search| {
            search.found.broken.iter().map(move |(property, way)| (*property, search.faults, way.len()))
        });
        let several = Property::ALL.into_iter().filter_map(|property| match self.finding(property) {
            Finding::BreaksTogether { faults, steps } => Some((property, faults, steps)),
            Finding::Holds { .. } | Finding::Breaks { .. } => None,
        });
        alone.chain(several).collect()
    }

    /// What is shown unless asked otherwise: its own exhibit, or `property` under the mildest fault that breaks it.
    pub fn chosen(&self, property: Option<Property>, fault: Option<Fault>) -> Option<(Property, Faults)> {
        let fits = |p: Property, faults: Faults| {
            property.is_none_or(|property| property == p)
                && fault.is_none_or(|fault| faults == Faults::from(Some(fault)))
        };
        let own = self.scheme.exhibit.map(|(property, fault)| (property, fault.into()));
        let all = self.exhibits().into_iter().map(|(property, faults, _)| (property, faults));
        own.into_iter().chain(all).find(|(property, faults)| fits(*property, *faults))
    }
}
