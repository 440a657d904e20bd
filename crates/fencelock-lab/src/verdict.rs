//! What a scheme keeps, and what it breaks under which fault.

use crate::explore::{Explored, explore};
use crate::fault::{Fault, Faults};
use crate::model::state::Action;
use crate::property::Property;
use crate::scheme::Scheme;

/// One search: the faults that could happen, and what it found.
#[derive(Debug, Clone)]
struct Search {
    /// `None` for the run without faults.
    fault: Option<Fault>,
    found: Explored,
}

/// Everything that was found out about a scheme.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The scheme.
    pub scheme: Scheme,
    searches: Vec<Search>,
    /// All faults at once that break nothing alone, for each property.
    together: Vec<(Property, Explored)>,
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
        /// The fewest steps.
        steps: usize,
    },
}

impl Verdict {
    /// Searches a scheme with no fault, with each of its faults, and with all those together that break nothing alone.
    pub fn of(scheme: Scheme) -> Self {
        let each = std::iter::once(None).chain(scheme.faults.iter().copied().map(Some));
        let search = |fault: Option<Fault>| Search { fault, found: explore(&scheme, fault.into_iter().collect()) };
        let searches: Vec<_> = each.map(search).collect();
        let mut together: Vec<(Property, Faults, Explored)> = Vec::new();
        for property in Property::ALL {
            let harmless = searches.iter().filter(|search| search.found.way(property).is_none());
            let faults: Faults = harmless.filter_map(|search| search.fault).collect();
            let known = together.iter().find(|(_, others, _)| *others == faults).map(|(_, _, found)| found.clone());
            let found = known.unwrap_or_else(|| explore(&scheme, faults));
            together.push((property, faults, found));
        }
        let together = together.into_iter().map(|(property, _, found)| (property, found)).collect();
        Self { scheme, searches, together }
    }

    /// How a property fares.
    pub fn finding(&self, property: Property) -> Finding {
        let broken = self.searches.iter().find_map(|search| Some((search.fault, search.found.way(property)?)));
        match broken {
            Some((fault, way)) => Finding::Breaks { fault, steps: way.len() },
            None => match self.all_harmless(property).way(property) {
                Some(way) => Finding::BreaksTogether { steps: way.len() },
                None => Finding::Holds { states: self.all_harmless(property).states },
            },
        }
    }

    /// The search with all faults at once that do not break a property alone.
    fn all_harmless(&self, property: Property) -> &Explored {
        let found = self.together.iter().find(|(this, _)| *this == property);
        &found.expect("every property was searched").1
    }

    /// The faults that were searched, in order; the first is none.
    pub fn faults(&self) -> impl Iterator<Item = Option<Fault>> + '_ {
        self.searches.iter().map(|search| search.fault)
    }

    /// The fewest steps to break `property` when `fault` may happen; `None` if it holds.
    pub fn steps(&self, property: Property, fault: Option<Fault>) -> Option<usize> {
        self.way(property, fault).map(<[Action]>::len)
    }

    pub(crate) fn way(&self, property: Property, fault: Option<Fault>) -> Option<&[Action]> {
        self.searches.iter().find(|search| search.fault == fault)?.found.way(property)
    }

    /// Everything that breaks it: under which fault, which property, in how many steps.
    pub fn exhibits(&self) -> Vec<(Property, Option<Fault>, usize)> {
        let all = self.searches.iter().flat_map(|search| {
            search.found.broken.iter().map(move |(property, way)| (*property, search.fault, way.len()))
        });
        all.collect()
    }

    /// What is shown unless asked otherwise: its own exhibit, or `property` under the mildest fault that breaks it.
    pub fn chosen(&self, property: Option<Property>, fault: Option<Fault>) -> Option<(Property, Option<Fault>)> {
        let own = self.scheme.exhibit.filter(|(p, f)| {
            property.is_none_or(|property| property == *p) && fault.is_none_or(|fault| Some(fault) == *f)
        });
        let mildest = || {
            let fits = |(p, f, _): &(Property, Option<Fault>, usize)| {
                property.is_none_or(|property| property == *p) && fault.is_none_or(|fault| Some(fault) == *f)
            };
            self.exhibits().into_iter().find(fits).map(|(property, fault, _)| (property, fault))
        };
        own.or_else(mildest)
    }
}
