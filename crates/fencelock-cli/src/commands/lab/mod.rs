//! The schemes that break, and how; and what that means for a shop and a bank.

mod args;
mod crew;
mod replay;
mod story;

pub(crate) use args::Lab;

use crate::context::{Context, may_colour, print};
use crate::exit::Exit;
use crate::failure::Failure;
use args::{Tale, fault, property};
use fencelock_lab::{Fault, Finding, Lang, Property, Trace, Verdict, catalog, diagram, find, json_table, table};
use std::fmt::Write;
use std::path::Path;

/// Wide enough for three clients and a server.
const CELLS: usize = 100;

/// Searches one scheme or all of them, and shows what was found.
pub(super) async fn lab(wanted: Lab, context: &Context) -> Result<Exit, Failure> {
    match &wanted.story {
        Some(Tale::Hand) => return story::hand(),
        Some(tale) => return story::tell(tale, context).await,
        None => {}
    }
    let lang = wanted.lang.into();
    match &wanted.scheme {
        None => overview(lang, context),
        Some(id) => {
            let scheme = find(id).ok_or_else(|| Failure::new(Exit::Usage, format!("there is no scheme {id:?}")))?;
            one(&wanted, Verdict::of(scheme), context).await
        }
    }
}

fn overview(lang: Lang, context: &Context) -> Result<Exit, Failure> {
    let verdicts: Vec<_> = std::thread::scope(|scope| {
        let searches: Vec<_> = catalog().into_iter().map(|scheme| scope.spawn(|| Verdict::of(scheme))).collect();
        searches.into_iter().filter_map(|search| search.join().ok()).collect()
    });
    if context.report.json {
        print(&format!("{:#}\n", json_table(&verdicts)))?;
    } else {
        print(&table(&verdicts, lang, may_colour()))?;
    }
    Ok(Exit::Success)
}

async fn one(wanted: &Lab, verdict: Verdict, context: &Context) -> Result<Exit, Failure> {
    let lang = wanted.lang.into();
    let (asked, under) = (wanted.property.as_deref().and_then(property), wanted.fault.as_deref().and_then(fault));
    let Some((property, fault)) = verdict.chosen(asked, under) else {
        return holds(&verdict, asked, under, lang, context);
    };
    let Some(trace) = Trace::of(&verdict, property, fault, lang) else {
        return holds(&verdict, asked, under, lang, context);
    };
    if let Some(file) = &wanted.svg {
        write(file, &diagram(&trace))?;
    }
    // The environment says where locks are kept, and not that anybody wants to see them broken there.
    if let Some(url) = args::url_of_command_line() {
        return replay::replay(wanted, &url, &verdict, &trace, context).await;
    }
    if context.report.json {
        print(&format!("{:#}\n", trace.json()))?;
    } else {
        print(&(trace.text(CELLS) + &others(&verdict, &trace)))?;
    }
    Ok(Exit::Success)
}

/// What else breaks the scheme.
fn others(verdict: &Verdict, shown: &Trace) -> String {
    let lang = shown.lang();
    let exhibits = verdict.exhibits().into_iter();
    let rest: Vec<_> = exhibits.filter(|(p, f, _)| (*p, *f) != (shown.property, shown.fault)).collect();
    if rest.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", lang.pick("Also broken:", "其他反例："));
    for (property, fault, steps) in rest {
        let chosen = fault.map(|fault| format!(" --fault {}", fault.name())).unwrap_or_default();
        let unit = lang.pick("steps", "步");
        let _ = writeln!(text, "  --property {}{chosen}  ({steps} {unit})", property.name());
    }
    text
}

fn holds(
    verdict: &Verdict,
    property: Option<Property>,
    fault: Option<Fault>,
    lang: Lang,
    context: &Context,
) -> Result<Exit, Failure> {
    let id = verdict.scheme.id;
    if let Some(fault) = fault.filter(|fault| !verdict.faults().any(|searched| searched == Some(*fault))) {
        let told = match lang {
            Lang::En => format!("{id} is not searched with the fault {}", fault.name()),
            Lang::Zh => format!("方案 {id} 不涉及故障 {}", fault.name()),
        };
        return Err(Failure::new(Exit::Usage, told));
    }
    if context.report.json {
        print(&format!("{:#}\n", json_table(std::slice::from_ref(verdict))))?;
        return Ok(Exit::Success);
    }
    let mut text = format!("{id}{}{}\n", lang.pick(": ", "："), verdict.scheme.title.get(lang));
    for kept in Property::ALL.into_iter().filter(|kept| property.is_none_or(|property| property == *kept)) {
        let label = kept.label(lang);
        let told = match (verdict.finding(kept), lang) {
            (Finding::Holds { states }, Lang::En) => format!("  \"{label}\" holds in all {states} states"),
            (Finding::Holds { states }, Lang::Zh) => format!("  “{label}”在全部 {states} 个状态中成立"),
            (Finding::BreaksTogether { .. }, Lang::En) => {
                format!("  \"{label}\" is broken by several faults together, by none of them alone")
            }
            (Finding::BreaksTogether { .. }, Lang::Zh) => {
                format!("  “{label}”在多种故障同时发生时会被打破，单独一种不会")
            }
            (Finding::Breaks { .. }, Lang::En) => format!("  \"{label}\" can be broken, but not by this fault alone"),
            (Finding::Breaks { .. }, Lang::Zh) => format!("  “{label}”会被打破，但单凭这个故障不会"),
        };
        let _ = writeln!(text, "{told}");
    }
    print(&format!("{text}{}\n", verdict.scheme.advice.get(lang)))?;
    Ok(Exit::Success)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::new(Exit::Output, format!("cannot write {}: {error}", file.display())))
}
