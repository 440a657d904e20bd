//! C5: the resource accepts no write or read of a superseded holder.
//!
//! - After a write or read with a greater token was accepted, a write that starts later is rejected; so is a read after
//!   such a write. In the order of the resource, if known, the tokens of conflicting accesses do not decrease.
//! - An access is rejected only if a greater conflicting token has arrived before, or if a holder with such a token was
//!   killed and may have used it.
//! - Every token was granted to the client that uses it, for writing if it writes.

use super::view::{At, KeyView};
use super::violation::{Check, Violation};
use crate::history::{HoldMode, Op, Outcome, SUPERSEDED_BY};
use std::collections::HashMap;

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

fn reads(at: &At<'_>) -> bool {
    at.line.op == Op::Read
}

/// The accesses with the greatest tokens so far.
#[derive(Debug, Default)]
struct Greatest<'a> {
    write: Option<At<'a>>,
    read: Option<At<'a>>,
}

impl<'a> Greatest<'a> {
    /// Keeps the first one of equal tokens.
    fn add(&mut self, at: At<'a>) {
        let kept = if reads(&at) { &mut self.read } else { &mut self.write };
        if kept.is_none_or(|kept| fence(&at) > fence(&kept)) {
            *kept = Some(at);
        }
    }

    /// The greatest tokens that another access must not follow with a smaller one.
    fn in_conflict(&self, at: &At<'_>) -> Option<At<'a>> {
        let read = self.read.filter(|_| !reads(at));
        self.write.into_iter().chain(read).max_by_key(fence)
    }
}

fn accepted<'a>(view: &KeyView<'a>) -> impl Iterator<Item = At<'a>> {
    view.accesses.iter().filter(|at| at.line.result == Outcome::Ok).copied()
}

fn in_the_order_of_the_resource(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let mut taken: Vec<_> = accepted(view).filter_map(|at| Some((at.line.seq?, at))).collect();
    taken.sort_by_key(|(seq, _)| *seq);
    let mut greatest = Greatest::default();
    for (_, at) in taken {
        if let Some(before) = greatest.in_conflict(&at).filter(|before| fence(before) > fence(&at)) {
            report(format!("the token {} was accepted after {}", fence(&at), fence(&before)), before, at);
        }
        greatest.add(at);
    }
}

fn in_the_order_of_time(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let mut by_return: Vec<_> = accepted(view).collect();
    let mut by_invoke = by_return.clone();
    by_return.sort_by_key(|at| at.line.return_us);
    by_invoke.sort_by_key(|at| at.line.invoke_us);
    let mut before = by_return.into_iter().peekable();
    let mut greatest = Greatest::default();
    for at in by_invoke {
        while let Some(earlier) = before.next_if(|earlier| earlier.line.return_us < at.line.invoke_us) {
            greatest.add(earlier);
        }
        // If the order of the resource is known for both accesses, it was checked above.
        let has_order = |at: &At<'_>| at.line.seq.is_some();
        let greater = greatest.in_conflict(&at).filter(|it| fence(it) > fence(&at));
        if let Some(greater) = greater.filter(|it| !(has_order(it) && has_order(&at))) {
            report(
                format!("the token {} was accepted after {} was accepted", fence(&at), fence(&greater)),
                greater,
                at,
            );
        }
    }
}

fn refusals_have_reasons(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    // Any access may have reached the resource, unless it failed.
    let (mut refused, mut arrived): (Vec<_>, Vec<_>) =
        view.accesses.iter().copied().partition(|at| at.line.result == Outcome::Fail);
    arrived.sort_by_key(|at| at.line.invoke_us);
    refused.sort_by_key(|at| at.line.return_us);
    let mut arrived = arrived.into_iter().peekable();
    let mut greatest = Greatest::default();
    for at in refused {
        while let Some(earlier) = arrived.next_if(|earlier| earlier.line.invoke_us <= at.line.return_us) {
            greatest.add(earlier);
        }
        if greatest.in_conflict(&at).is_none_or(|greater| fence(&greater) <= fence(&at)) && !by_one_who_died(view, &at)
        {
            report(format!("the token {} was rejected, but no greater one had arrived", fence(&at)), at, at);
        }
    }
}

/// Whether the resource reports a greater token whose holder has recorded nothing since its grant: a process that is killed
/// during an access does not record it.
fn by_one_who_died(view: &KeyView<'_>, at: &At<'_>) -> bool {
    let named = at.line.what.as_deref().and_then(|what| what.strip_prefix(SUPERSEDED_BY)?.parse::<u64>().ok());
    let Some(named) = named.filter(|named| *named > fence(at)) else { return false };
    view.holds.iter().any(|hold| {
        let in_conflict = !reads(at) || hold.mode() == HoldMode::Exclusive;
        hold.acquire.fence == Some(named)
            && in_conflict
            && hold.ended_by == hold.number
            && hold.acquire.return_us <= at.line.return_us
    })
}

fn tokens_were_granted(view: &KeyView<'_>, report: &mut impl FnMut(String, At<'_>, At<'_>)) {
    let modes: HashMap<_, _> =
        view.holds.iter().map(|hold| ((hold.acquire.holder.as_deref(), hold.acquire.fence), hold.mode())).collect();
    for at in &view.accesses {
        let wanted = if reads(at) { HoldMode::Shared } else { HoldMode::Exclusive };
        match modes.get(&(at.line.holder.as_deref(), at.line.fence)) {
            Some(mode) if *mode == wanted => {}
            Some(mode) => report(format!("the token {} was granted for another use: {mode}", fence(at)), *at, *at),
            None => report(format!("the token {} was not granted to this writer", fence(at)), *at, *at),
        }
    }
}
