//! Model-checks lock schemes.

pub(crate) mod args;
mod replay;
mod url;

use crate::context::{Context, may_colour, print};
use crate::exit::Exit;
use crate::failure::Failure;
use args::{Lab, fault, property};
use fencelock_lab::{
    Fault, Faults, Lang, LockScheme, Property, PropertyResult, SchemeResults, Trace, catalog, diagram, find,
    json_table, table,
};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use url::url_of_command_line;

/// Wide enough for three clients and a server.
const CELLS: usize = 100;

/// Searches one scheme or all of them, and prints the result.
pub(super) async fn lab(wanted: Lab, context: &Context) -> Result<Exit, Failure> {
    let lang = wanted.lang.into();
    match &wanted.scheme {
        None => overview(lang, context).await,
        Some(id) => {
            let scheme = find(id).ok_or_else(|| Failure::new(Exit::Usage, format!("unknown scheme {id:?}")))?;
            let results = searched(vec![scheme]).await?.remove(0);
            one(&wanted, results, context).await
        }
    }
}

async fn overview(lang: Lang, context: &Context) -> Result<Exit, Failure> {
    let results = searched(catalog()).await?;
    if context.report.json {
        print(&format!("{:#}\n", json_table(&results)))?;
    } else {
        print(&table(&results, lang, may_colour()))?;
    }
    Ok(Exit::Success)
}

/// Searches all schemes, each on a separate thread.
async fn searched(schemes: Vec<LockScheme>) -> Result<Vec<SchemeResults>, Failure> {
    let search = |scheme| tokio::task::spawn_blocking(move || SchemeResults::of(scheme));
    let searches: Vec<_> = schemes.into_iter().map(search).collect();
    let mut results = Vec::new();
    for search in searches {
        results.push(search.await.map_err(|error| Failure::system("search", error))?);
    }
    Ok(results)
}

async fn one(wanted: &Lab, results: SchemeResults, context: &Context) -> Result<Exit, Failure> {
    let lang = wanted.lang.into();
    let (property_asked, under) =
        (wanted.property.as_deref().and_then(property), wanted.fault.as_deref().and_then(fault));
    let shown = results
        .chosen(property_asked, under)
        .and_then(|(property, faults)| Trace::of(&results, property, faults, lang));
    let Some(trace) = shown else { return holds(&results, property_asked, under, lang, context) };
    if let Some(file) = &wanted.svg {
        write(file, &diagram(&trace))?;
    }
    // A replay requires --url: FENCELOCK_URL names the server of production locks.
    if let Some(url) = url_of_command_line()? {
        if wanted.every {
            return Err(Failure::new(
                Exit::Usage,
                "--all cannot be combined with --url: replay one --property at a time",
            ));
        }
        return replay::replay(wanted, &url, &results, &trace, context).await;
    }
    let traces = if wanted.every { every(&results, property_asked, under, lang) } else { vec![trace] };
    if context.report.json {
        let shown: Vec<_> = traces.iter().map(Trace::json).collect();
        print(&if wanted.every { format!("{:#}\n", Value::from(shown)) } else { format!("{:#}\n", shown[0]) })?;
    } else {
        let shown: Vec<_> = traces.iter().map(|trace| trace.text(CELLS)).collect();
        print(&if wanted.every { shown.join("\n\n") } else { shown.concat() + &others(&results, &traces[0]) })?;
    }
    Ok(Exit::Success)
}

/// All counterexamples, or those to one property, or under one fault.
fn every(results: &SchemeResults, property: Option<Property>, fault: Option<Fault>, lang: Lang) -> Vec<Trace> {
    let fits = |(p, faults, _): &(Property, Faults, usize)| {
        property.is_none_or(|property| property == *p) && fault.is_none_or(|fault| *faults == Some(fault).into())
    };
    let fitting = results.exhibits().into_iter().filter(fits);
    fitting.filter_map(|(property, faults, _)| Trace::of(results, property, faults, lang)).collect()
}

/// The other counterexamples of the scheme.
fn others(results: &SchemeResults, shown: &Trace) -> String {
    let lang = shown.lang();
    let exhibits = results.exhibits().into_iter();
    let rest: Vec<_> = exhibits.filter(|(p, faults, _)| (*p, *faults) != (shown.property, shown.faults)).collect();
    if rest.is_empty() {
        return String::new();
    }
    let mut text =
        format!("\n{}\n", lang.pick("Also broken (`--all` shows each):", "其他反例（加 `--all` 全部显示）："));
    for (property, faults, steps) in rest {
        let mut each = faults.iter();
        // Several break it where none does alone, so the property says enough.
        let chosen = match (each.next(), each.next()) {
            (Some(fault), None) => format!(" --fault {}", fault.name()),
            (Some(_), Some(_)) | (None, _) => String::new(),
        };
        let unit = lang.pick("steps", "步");
        let _ = writeln!(text, "  --property {}{chosen}  ({steps} {unit})", property.name());
    }
    text
}

fn holds(
    results: &SchemeResults,
    property: Option<Property>,
    fault: Option<Fault>,
    lang: Lang,
    context: &Context,
) -> Result<Exit, Failure> {
    let id = results.scheme.id;
    if let Some(fault) = fault.filter(|fault| !results.faults().any(|searched| searched == Some(*fault))) {
        let shown = match lang {
            Lang::En => format!("{id} is not searched with the fault {}", fault.name()),
            Lang::Zh => format!("方案 {id} 不涉及故障 {}", fault.name()),
        };
        return Err(Failure::new(Exit::Usage, shown));
    }
    if context.report.json {
        print(&format!("{:#}\n", json_table(std::slice::from_ref(results))))?;
        return Ok(Exit::Success);
    }
    let mut text = format!("{id}{}{}\n", lang.pick(": ", "："), results.scheme.title.get(lang));
    for kept in Property::ALL.into_iter().filter(|kept| property.is_none_or(|property| property == *kept)) {
        let label = kept.label(lang);
        let shown = match (results.result(kept), lang) {
            (PropertyResult::Holds { states }, Lang::En) => format!("  \"{label}\" holds in all {states} states"),
            (PropertyResult::Holds { states }, Lang::Zh) => format!("  “{label}”在全部 {states} 个状态中成立"),
            (PropertyResult::BreaksTogether { .. }, Lang::En) => {
                format!("  \"{label}\" is broken by several faults together, by none of them alone")
            }
            (PropertyResult::BreaksTogether { .. }, Lang::Zh) => {
                format!("  “{label}”在多种故障同时发生时会被打破，单独一种不会")
            }
            (PropertyResult::Breaks { .. }, Lang::En) => {
                format!("  \"{label}\" can be broken, but not by this fault alone")
            }
            (PropertyResult::Breaks { .. }, Lang::Zh) => format!("  “{label}”会被打破，但单凭这个故障不会"),
        };
        let _ = writeln!(text, "{shown}");
    }
    print(&format!("{text}{}\n", results.scheme.advice.get(lang)))?;
    Ok(Exit::Success)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::new(Exit::Output, format!("cannot write {}: {error}", file.display())))
}
