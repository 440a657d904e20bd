//! Text output.

use fencelock::contract::Occupied;
use fencelock::{Expiry, Fault, HolderId, HolderInfo, Holding, Liveness, Mode, Owner, Span, Unknown};
use std::fmt::Write;
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// Escapes `text` to one line without control characters: keys, labels, values and error texts come from other programs, and a
/// terminal executes escape sequences in them.
pub(crate) fn plain(text: &(impl ToString + ?Sized)) -> String {
    let text = text.to_string();
    if !text.chars().any(misleads) {
        return text;
    }
    text.chars().map(|c| if misleads(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// What fits into the label of a lock, with a mark where it was cut: a long label is no reason to refuse a lock.
pub(crate) fn label(text: &str) -> String {
    const MARK: char = '…';
    if text.len() <= Owner::LABEL_MAX_BYTES {
        return text.to_owned();
    }
    let fits = |(at, _): &(usize, char)| *at <= Owner::LABEL_MAX_BYTES - MARK.len_utf8();
    let end = text.char_indices().take_while(fits).last().map_or(0, |(at, _)| at);
    format!("{}{MARK}", &text[..end])
}

/// Characters that move the cursor, end a line, or change the text direction.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// `2nd`
pub(crate) fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

/// `held by web-1:4242 (nightly) for 3 min 10 s, ends in 12.3 s unless renewed, 2 waiting`
pub(crate) fn holding(holding: &Holding) -> String {
    describe(holding, |left| format!(", ends in {} unless renewed", Span(left)))
}

/// `held by web-1:4242 (nightly) for 3 min 10 s, with 12.3 s left, 2 waiting`: a hold that has ended.
pub(crate) fn ended_holding(holding: &Holding) -> String {
    describe(holding, |left| format!(", with {} left", Span(left)))
}

fn describe(holding: &Holding, lease: impl Fn(Duration) -> String) -> String {
    let occupied = Occupied::from(holding.clone());
    let mut text = match holding.first().mode {
        Mode::Exclusive => format!("held by {}", occupied.holders),
        mode => format!("held as {} by {}", mode.class(), occupied.holders),
    };
    if let Some(held_for) = occupied.held_for {
        let _ = write!(text, " for {}", Span(held_for));
    }
    if holding.first().mode == Mode::Exclusive {
        text.push_str(&alive(holding.first()));
    }
    if let Expiry::In(left) = occupied.expiry {
        text.push_str(&lease(left));
    }
    if holding.waiters > 0 {
        let _ = write!(text, ", {} waiting", holding.waiters);
    }
    plain(&text)
}

/// `, renewed 3 s ago`, `, no renewal for 12 s, expected every 10 s`, or nothing if nothing shows whether the holder is alive.
fn alive(hold: &HolderInfo) -> String {
    match hold.alive {
        Some(Liveness::Process) => ", its process lives".to_owned(),
        Some(Liveness::Renewed { ago, every: Some(every) }) if hold.alive.is_some_and(Liveness::is_overdue) => {
            format!(", no renewal for {}, expected every {}", Span(ago), Span(every))
        }
        // It was granted, and not renewed yet.
        Some(Liveness::Renewed { ago, .. }) if hold.held_for.is_none_or(|held_for| held_for > ago) => {
            format!(", renewed {} ago", Span(ago))
        }
        _ => String::new(),
    }
}

/// The holders of a shared lock or of permits, one in each line; empty for an exclusive lock, which has one.
pub(crate) fn holders(holding: &Holding) -> String {
    if holding.first().mode == Mode::Exclusive {
        return String::new();
    }
    let mut text = String::new();
    for hold in holding.holders.iter() {
        let _ = write!(text, "\n  {}, {}", holder_of(hold), hold.mode);
        if let Some(held_for) = hold.held_for {
            let _ = write!(text, ", for {}", Span(held_for));
        }
        text.push_str(&alive(hold));
        if let Expiry::In(left) = hold.expiry {
            let _ = write!(text, ", ends in {} unless renewed", Span(left));
        }
    }
    text
}

/// The first waiters, one in each line.
pub(crate) fn waiters(holding: &Holding) -> String {
    let Some(queue) = &holding.queue else { return "\n  who waits is unknown".to_owned() };
    let mut text = String::new();
    for (place, waiter) in queue.iter().enumerate() {
        let _ = write!(text, "\n  waiting {}: {}", place + 1, plain(&waiter.holder.owner));
        if waiter.mode != Mode::Exclusive {
            let _ = write!(text, ", {}", waiter.mode);
        }
        if let Some(waited) = waiter.waited {
            let _ = write!(text, ", for {}", Span(waited));
        }
    }
    let named = u32::try_from(queue.len()).unwrap_or(u32::MAX);
    if holding.waiters > named {
        let _ = write!(text, "\n  and {} more waiting", holding.waiters - named);
    }
    text
}

/// `web-1:4242 (nightly)`; `5f3b12ab web-1:4242 (nightly)` for one of several that may hold the key together.
pub(crate) fn holder_of(hold: &HolderInfo) -> String {
    match hold.holder_id().filter(|_| hold.mode != Mode::Exclusive) {
        Some(id) => format!("{} {}", prefix(id), plain(&hold.occupant)),
        None => plain(&hold.occupant),
    }
}

/// `node in quarantine for 12.0 s`: why the holder of a key is unknown.
pub(crate) fn quarantine(cause: &Unknown) -> String {
    let nodes: Vec<_> = cause.nodes().iter().filter(|node| node.fault == Fault::Quarantined).collect();
    let (mut text, up_to) = match nodes.len() {
        0 | 1 => ("node in quarantine".to_owned(), ""),
        many => (format!("{many} nodes in quarantine"), "up to "),
    };
    if let Some(rest) = nodes.iter().filter_map(|node| node.passes_in).max() {
        let _ = write!(text, " for {up_to}{}", Span(rest));
    }
    if nodes.iter().any(|node| node.passes_in.is_none()) {
        text.push_str(", not started: `fencelock init` or the next claim starts it");
    }
    text
}

/// Formats rows as aligned columns. The last column is not padded.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        // The width of a cell on the screen: a Chinese character takes two columns.
        let padded =
            |(cell, width): (&String, usize)| format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width())));
        let line: Vec<_> = row.iter().zip(widths).map(padded).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The first digits of a holder id: enough to identify one of several holders, but not to release its hold.
pub(crate) fn prefix(holder: HolderId) -> String {
    holder.to_string().chars().take(8).collect()
}

/// Who has a lock and why, for everybody who waits for it: `for job-7 while 4242 runner: deploy`. See [`owner_of`].
pub(crate) fn label_of(owner: &str, (pid, command): (u32, &str), why: Option<&str>) -> String {
    let owner = if owner.is_empty() { String::new() } else { format!("for {owner} ") };
    let of_process = format!("{owner}while {pid} {command}");
    let why = why.filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
    label(&format!("{of_process}{why}"))
}

/// The name of the owner in the label of a lock that a keeper has.
pub(crate) fn owner_of(label: &str) -> Option<&str> {
    let (owner, rest) = label.strip_prefix("for ")?.split_once(' ')?;
    process_of(rest).map(|_| owner)
}

/// The process that is named in the label of a lock that a keeper has. A keeper ignores TERM, and ends with that process.
pub(crate) fn process_of(label: &str) -> Option<i32> {
    let label = label.strip_prefix("for ").and_then(|rest| rest.split_once(' ')).map_or(label, |(_, rest)| rest);
    label.strip_prefix("while ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_owner_and_process_whatever_the_process_calls_itself() {
        for (owner, command) in [("job-7", "runner"), ("a:b/c", "for x while 3 y"), ("", "for x"), ("", "while")] {
            for label in [None, Some("for me while 9 lives"), Some("")] {
                let text = label_of(owner, (4242, command), label);
                let named = Some(owner).filter(|owner| !owner.is_empty());
                assert_eq!((owner_of(&text), process_of(&text)), (named, Some(4242)), "{text}");
            }
        }
        for other in ["nightly", "for me", "for me and you", "while away"] {
            assert_eq!((owner_of(other), process_of(other)), (None, None), "{other}");
        }
        for (label, end) in [("l".repeat(128), "lll…"), ("é".repeat(64), "éé…"), ("l".repeat(110), "lll")] {
            let text = label_of("x", (1, "sh"), Some(&label));
            assert!(text.len() <= 128 && text.starts_with("for x while 1 sh: ") && text.ends_with(end), "{text}");
        }
    }
    use fencelock::NodeFault;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("a\x1b[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(plain("a\u{9b}2J\u{202e}b\u{2028}c"), "a\\u{9b}2J\\u{202e}b\\u{2028}c");
        assert_eq!(plain("订单 42"), "订单 42");
    }

    #[test]
    fn a_holder_shows_its_renewals_where_they_are_known() {
        let (secs, occupant) = (Duration::from_secs, fencelock::Occupant::from_wire(&"0".repeat(32)));
        let hold = HolderInfo::new(occupant, Expiry::In(secs(20))).with_held_for(Some(secs(100)));
        let shown = |ago, every| {
            let known = Liveness::Renewed { ago: secs(ago), every: Some(secs(every)) };
            alive(&hold.clone().with_alive(Some(known)))
        };
        assert_eq!(shown(3, 10), ", renewed 3 s ago");
        assert_eq!(shown(13, 10), ", no renewal for 13 s, expected every 10 s");
        assert_eq!(
            (shown(100, 100), shown(130, 100)),
            (String::new(), ", no renewal for 2 min 10 s, expected every 1 min 40 s".to_owned())
        );
        assert_eq!(
            (alive(&hold), alive(&hold.clone().with_alive(Some(Liveness::Process)))),
            (String::new(), ", its process lives".to_owned())
        );
    }

    #[test]
    fn a_quarantine_shows_its_remaining_time_or_that_it_has_not_started() {
        let node = |rest: Option<u64>| {
            let fault = NodeFault::new("a:1", Fault::Quarantined, "");
            rest.map_or(fault.clone(), |rest| fault.with_passes_in(Duration::from_secs(rest)))
        };
        let shown = |rests: &[Option<u64>]| quarantine(&Unknown::of_nodes(rests.iter().copied().map(node).collect()));
        assert_eq!(shown(&[Some(12)]), "node in quarantine for 12 s");
        assert_eq!(shown(&[Some(12), Some(14)]), "2 nodes in quarantine for up to 14 s");
        assert!(shown(&[None]).starts_with("node in quarantine, not started: `fencelock init`"));
    }

    #[test]
    fn ordinals_are_english() {
        let words: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].into_iter().map(ordinal).collect();
        assert_eq!(words.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["KEY", "HOLDER"], ["nightly-report", "a:1"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "KEY             HOLDER\nnightly-report  a:1\n");
    }

    #[test]
    fn columns_are_as_wide_as_characters_are_on_the_screen() {
        let rows = [["KEY", "HOLDER"], ["订单", "a:1"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "KEY   HOLDER\n订单  a:1\n");
    }
}
