//! Which properties a scheme keeps, and which faults violate them.

use crate::explore::{Explored, explore};
use crate::fault::{Fault, Faults};
use crate::model::state::Action;
use crate::property::Property;
use crate::scheme::LockScheme;

/// A search: the faults that could happen, and the result.
#[derive(Debug, Clone)]
struct Search {
    faults: Faults,
    found: Explored,
}

/// All results about a scheme.
#[derive(Debug, Clone)]
pub struct SchemeResults {
    /// The scheme.
    pub scheme: LockScheme,
    /// The searches with no fault, and with each fault alone.
    searches: Vec<Search>,
    /// For each property, all faults that do not violate it alone; if they do together, the smallest such set.
    together: Vec<(Property, Search)>,
}

/// The result for a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyResult {
    /// The property holds in all states, with each fault of the scheme alone and with all of them.
    Holds {
        /// The number of states of the largest search.
        states: usize,
    },
    /// The property can be violated.
    Breaks {
        /// The mildest fault needed; `None` if no fault is needed.
        fault: Option<Fault>,
        /// The smallest number of steps.
        steps: usize,
    },
    /// No single fault violates the property, but several together do.
    BreaksTogether {
        /// The smallest set of faults.
        faults: Faults,
        /// The smallest number of steps.
        steps: usize,
    },
}

impl SchemeResults {
    /// Searches a scheme with no fault, with each fault alone, and with all faults that violate nothing alone.
    pub fn of(scheme: LockScheme) -> Self {
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

    /// The result for a property.
    pub fn result(&self, property: Property) -> PropertyResult {
        let alone = self.searches.iter().find_map(|search| Some((search.faults, search.found.way(property)?)));
        if let Some((faults, way)) = alone {
            return PropertyResult::Breaks { fault: faults.iter().next(), steps: way.len() };
        }
        let Search { faults, found } = self.of_several(property);
        match found.way(property) {
            Some(way) => PropertyResult::BreaksTogether { faults: *faults, steps: way.len() },
            None => PropertyResult::Holds { states: found.states },
        }
    }

    /// The search with several faults that do not violate a property alone.
    fn of_several(&self, property: Property) -> &Search {
        let found = self.together.iter().find(|(this, _)| *this == property);
        &found.expect("every property was searched").1
    }

    /// The faults that were searched, in order. The first is no fault.
    pub fn faults(&self) -> impl Iterator<Item = Option<Fault>> + '_ {
        self.searches.iter().map(|search| search.faults.iter().next())
    }

    /// The smallest number of steps that violate `property` with these faults; `None` if it holds, or was not searched.
    pub fn steps(&self, property: Property, faults: impl Into<Faults>) -> Option<usize> {
        self.way(property, faults.into()).map(<[Action]>::len)
    }

    pub(crate) fn way(&self, property: Property, faults: Faults) -> Option<&[Action]> {
        let several = (faults.count() > 1).then(|| self.of_several(property));
        self.searches.iter().chain(several).find(|search| search.faults == faults)?.found.way(property)
    }

    /// All violations: the property, the faults, and the number of steps. A set of several faults is listed only where
    /// no single fault is enough.
    pub fn exhibits(&self) -> Vec<(Property, Faults, usize)> {
        let alone = self.searches.iter().flat_map(|search| {
            search.found.broken.iter().map(move |(property, way)| (*property, search.faults, way.len()))
        });
        let several = Property::ALL.into_iter().filter_map(|property| match self.result(property) {
            PropertyResult::BreaksTogether { faults, steps } => Some((property, faults, steps)),
            PropertyResult::Holds { .. } | PropertyResult::Breaks { .. } => None,
        });
        alone.chain(several).collect()
    }

    /// The default choice: the exhibit of the scheme, or `property` with the mildest fault that violates it.
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
