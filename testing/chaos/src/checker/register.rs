//! C5: the resource accepts no write of a superseded holder.
//!
//! - A write that starts after one with a greater token was accepted is rejected; in the order of the resource, if
//!   known, tokens do not decrease.
//! - A write is rejected only if a greater token has arrived before.
//! - Every token was granted to the client that uses it.

use super::view::{At, KeyView};
use super::violation::{Check, Violation};
use crate::history::Outcome;
use std::collections::HashSet;

pub(super) fn check(key: &str, view: &KeyView<'_>, found: &mut Vec<Violation>) {
    let mut report = |text: String, one: At<'_>, other: At<'_>| {
        found.push(Violation {
            check: Check::C5,
            key: key.to_owned(),
            lines: vec![one.number, other.number],
            span_us: (one.line.invoke_us.min(other.line.invoke_us), one.line.return_us.max(other.line.return_us)),
            text,
        });
    };
    in_the_order_of_the_resource(view, &mut report);
    in_the_order_of_time(view, &mut report);
    refusals_have_reasons(view, &mut report);
    tokens_were_granted(view, &mut report);
}

fn fence(at: &At<'_>) -> u64 {
    at.line.fence.unwrap_or(0)
}

fn in_the_order_of_the_resource(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let taken = view.writes.iter().filter(|at| at.line.result == Outcome::Ok);
    let mut taken: Vec<_> = taken.filter_map(|at| Some((at.line.seq?, *at))).collect();
    taken.sort_by_key(|(seq, _)| *seq);
    let mut greatest: Option<At<'_>> = None;
    for (_, at) in taken {
        match greatest {
            Some(before) if fence(&before) > fence(&at) => {
                report(format!("the token {} was accepted after {}", fence(&at), fence(&before)), before, at);
            }
            _ => greatest = Some(at),
        }
    }
}

fn in_the_order_of_time(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let mut by_return: Vec<_> = view.writes.iter().filter(|at| at.line.result == Outcome::Ok).copied().collect();
    let mut by_invoke = by_return.clone();
    by_return.sort_by_key(|at| at.line.return_us);
    by_invoke.sort_by_key(|at| at.line.invoke_us);
    let mut before = by_return.into_iter().peekable();
    let mut greatest: Option<At<'_>> = None;
    for at in by_invoke {
        while let Some(earlier) = before.next_if(|earlier| earlier.line.return_us < at.line.invoke_us) {
            if greatest.is_none_or(|greatest| fence(&earlier) > fence(&greatest)) {
                greatest = Some(earlier);
            }
        }
        // If the order of the resource is known for both writes, it was checked above.
        let has_order = |at: &At<'_>| at.line.seq.is_some();
        if let Some(greater) = greatest.filter(|it| fence(it) > fence(&at) && !(has_order(it) && has_order(&at))) {
            report(
                format!("the token {} was accepted after {} was accepted", fence(&at), fence(&greater)),
                greater,
                at,
            );
        }
    }
}

fn refusals_have_reasons(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    // Any write may have reached the resource, unless it failed.
    let mut arrived: Vec<_> = view.writes.iter().filter(|at| at.line.result != Outcome::Fail).copied().collect();
    let mut refused: Vec<_> = view.writes.iter().filter(|at| at.line.result == Outcome::Fail).copied().collect();
    arrived.sort_by_key(|at| at.line.invoke_us);
    refused.sort_by_key(|at| at.line.return_us);
    let mut arrived = arrived.into_iter().peekable();
    let mut greatest = 0;
    for at in refused {
        while let Some(earlier) = arrived.next_if(|earlier| earlier.line.invoke_us <= at.line.return_us) {
            greatest = greatest.max(fence(&earlier));
        }
        if greatest <= fence(&at) {
            report(format!("the token {} was rejected, but no greater one had arrived", fence(&at)), at, at);
        }
    }
}

fn tokens_were_granted(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let granted: HashSet<_> =
        view.holds.iter().map(|hold| (hold.acquire.holder.as_deref(), hold.acquire.fence)).collect();
    for at in &view.writes {
        if !granted.contains(&(at.line.holder.as_deref(), at.line.fence)) {
            report(format!("the token {} was not granted to this writer", fence(at)), *at, *at);
        }
    }
}
