use super::view::{At, RunView};
use super::violation::{Check, Violation};
use crate::history::HistoryLine;
use std::fmt;

/// The result of all checks of a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckResults {
    /// Violations without an excuse.
    pub broken: Vec<Violation>,
    /// Violations that a fault excuses.
    pub excused: Vec<Violation>,
    /// Violations that a control requires.
    pub wanted: Vec<Violation>,
    /// The controls that were flagged, with check and key.
    pub flagged: Vec<(Check, String)>,
}

impl CheckResults {
    pub(super) fn of(found: Vec<Violation>, run: &RunView<'_>, lines: &[HistoryLine]) -> Self {
        let mut results = Self::default();
        for control in &run.controls {
            let Some(check) = check_of(control) else { continue };
            let is_it = |violation: &&Violation| violation.check == check && violation.key == control.line.key;
            if found.iter().any(|violation| is_it(&violation)) {
                results.flagged.push((check, control.line.key.clone()));
            }
        }
        for violation in found {
            let is_it =
                |control: &At<'_>| control.line.key == violation.key && check_of(control) == Some(violation.check);
            if run.controls.iter().any(is_it) {
                results.wanted.push(violation);
            } else if run.faults.iter().any(|fault| excuses(fault, &violation, lines)) {
                results.excused.push(violation);
            } else {
                results.broken.push(violation);
            }
        }
        results
    }

    /// Whether there is no violation without excuse, and every control was flagged.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty()
    }

    /// The number of violations of a check without an excuse.
    pub fn broken_of(&self, check: Check) -> usize {
        self.broken.iter().filter(|violation| violation.check == check).count()
    }
}

/// The check that a control refers to.
pub(super) fn check_of(control: &At<'_>) -> Option<Check> {
    control.line.what.as_deref()?.parse().ok()
}

/// A fault of one holder excuses no other one.
fn excuses(fault: &At<'_>, violation: &Violation, lines: &[HistoryLine]) -> bool {
    let line = fault.line;
    let is_of_it = |number: &usize| lines[number - 1].holder == line.holder;
    let (from, until) = violation.span_us;
    line.excuses.iter().any(|name| *name == violation.check.to_string())
        && (line.key.is_empty() || line.key == violation.key)
        && (line.holder.is_none() || violation.lines.iter().any(is_of_it))
        && line.invoke_us <= until
        && line.return_us >= from
}

impl fmt::Display for CheckResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in Check::ALL {
            let count = |of: &[Violation]| of.iter().filter(|violation| violation.check == check).count();
            let (broken, excused, wanted) = (count(&self.broken), count(&self.excused), count(&self.wanted));
            let mark = if broken == 0 { "kept  " } else { "BROKEN" };
            write!(f, "{:<3} {mark} {}", check.to_string(), check.guarantee())?;
            for (count, word) in
                [(broken, "broken"), (excused, "excused by a fault"), (wanted, "required by a control")]
            {
                if count > 0 {
                    write!(f, "; {count} {word}")?;
                }
            }
            writeln!(f)?;
        }
        for violation in self.broken.iter().take(20) {
            writeln!(f, "BROKEN {violation}")?;
        }
        Ok(())
    }
}
