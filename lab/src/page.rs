//! The generated page about all schemes.

use crate::diagram::diagram;
use crate::lang::Lang;
use crate::property::Property;
use crate::scheme_results::SchemeResults;
use crate::table::cell;
use crate::trace::Trace;
use std::fmt::Write;

/// A page in Markdown, and its pictures.
#[derive(Debug, Clone)]
pub struct Page {
    /// The text.
    pub text: String,
    /// File names and contents of the pictures, which are stored in the directory `lab` next to the page.
    pub pictures: Vec<(String, String)>,
}

/// Writes the page about these schemes, in English.
pub fn page(all: &[SchemeResults]) -> Page {
    let mut page = Page { text: HEADING.to_owned(), pictures: Vec::new() };
    page.table(all);
    for results in all {
        page.scheme(results);
    }
    page
}

impl Page {
    fn table(&mut self, all: &[SchemeResults]) {
        let head: Vec<_> = Property::ALL.map(|property| property.label(Lang::En)).into();
        let _ = writeln!(self.text, "| scheme | {} |", head.join(" | "));
        let _ = writeln!(self.text, "|---|{}", "---|".repeat(head.len()));
        for results in all {
            let cells: Vec<_> = Property::ALL.map(|property| cell(results.result(property), Lang::En)).into();
            let id = results.scheme.id;
            let _ = writeln!(self.text, "| [{id}](#{id}) | {} |", cells.join(" | "));
        }
    }

    fn scheme(&mut self, results: &SchemeResults) {
        let id = results.scheme.id;
        let _ = write!(self.text, "\n## {id}\n\n{}.\n", results.scheme.title.get(Lang::En));
        let shown =
            results.chosen(None, None).and_then(|(property, faults)| Trace::of(results, property, faults, Lang::En));
        if let Some(trace) = shown {
            let file = format!("{id}.svg");
            let _ = write!(self.text, "\n**{}.**\n\n", trace.headline());
            for (number, row) in (1..).zip(&trace.rows) {
                let _ = writeln!(self.text, "{number}. {}", row.sentence);
            }
            let (steps, breach) = (trace.rows.len(), trace.breach);
            let _ = write!(self.text, "\nSo after step {steps} {breach}.\n");
            let _ = write!(self.text, "\n![{}](lab/{file})\n", trace.headline());
            self.pictures.push((file, diagram(&trace)));
        }
        let _ = write!(self.text, "\n{}\n", results.scheme.advice.get(Lang::En));
    }
}

const HEADING: &str = "\
# Why naive locks break

`cargo run -p fencelock-lab` searches every order of the steps of two or three clients, with crashes and delays, and
prints the shortest way to break each scheme. `cargo run -p fencelock-lab -- SCHEME --url redis://HOST` replays the same steps on a real server.

A lock lasts two ticks, so it is set with `EX 2`. The number in a cell is the smallest number of steps that breaks the property, and the
word in front of it is the fault that is needed. \"breaks\" means that no fault is needed, \"several\" that more than one is.

- *one holder*: two clients never work at the same time
- *own lock only*: no client deletes, overwrites or shortens a valid lock of another client
- *no dead lock*: once all clients have been gone for one lifetime of the lock, the next client acquires it at once
- *no late write*: no write is accepted after a later holder has started

For a semaphore, *one holder* means that no more clients work than there are permits, and a write is late if the lease of its
permit has ended. For a lock with readers, a reader counts like a writer.

Without faults, clients finish in time. *crash*: one client dies. *lost release*: its connection breaks before it releases the
lock. *clocks*: the clocks of the clients differ by a tick. *overrun*: the work takes longer than the lock lasts, while the
process keeps running. *pause*: the whole process is paused, including its watchdog. *failover*: a replica that has not copied
everything takes over. *restart*: a server has lost all data. A property that \"holds\" was searched with each fault of the scheme
and with all of them together.

Bounds: each client acquires the lock at most once and tries at most twice; a search lasts six ticks; a command and its reply
are one step.

";
