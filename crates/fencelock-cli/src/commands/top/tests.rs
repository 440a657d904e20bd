//! The screen without a terminal: what is shown at 80x24, and what a key does.

use super::args::By;
use super::screen::render;
use super::table::{Table, Wish};
use super::{Holding, Watch, pause};
use fencelock::contract::{Holder, WaiterInfo};
use fencelock::{Expiry, FencingToken, HolderInfo, Key, Liveness, Mode, Occupant, Owner};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::time::Duration;
use tokio::time::Instant;

fn holder(n: u32) -> Holder {
    let id = format!("{n:032x}").parse().unwrap();
    Holder { id, owner: Owner::new("web-1", n, Some("nightly")).unwrap() }
}

fn held(key: &str, n: u32, held_for: u64) -> Holding {
    let hold = HolderInfo::new(Occupant::Holder(holder(n)), Expiry::In(Duration::from_millis(20_500)));
    let hold = hold.with_held_for(Some(Duration::from_secs(held_for))).with_fence(FencingToken::new(17).ok());
    Holding::new(Key::new(key).unwrap(), hold).with_queue(Some(Vec::new()))
}

fn waiter(n: u32, waited: u64) -> WaiterInfo {
    WaiterInfo::new(holder(n), Mode::Exclusive, Some(Duration::from_secs(waited)))
}

fn table(locks: Vec<Holding>) -> Table {
    let mut table = Table::new("redis://locks.example:6379".to_owned(), true, By::Waiting);
    table.on_list(locks, Instant::now());
    table
}

fn three() -> Table {
    let queue = Some(vec![waiter(7, 190), waiter(8, 5)]);
    table(vec![
        held("backup", 1, 3),
        held("report/daily", 2, 4000).with_waiters(2).with_queue(queue),
        held("订单", 3, 60),
    ])
}

fn draw(table: &mut Table, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render(frame, table)).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of a screen of this size, without white space at their ends.
fn screen(table: &mut Table, size: (u16, u16)) -> Vec<String> {
    let buffer = draw(table, size);
    let line = |y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..size.1).map(line).collect()
}

#[track_caller]
fn shows(table: &mut Table, parts: &[&str]) {
    let shown = screen(table, (80, 24)).join("\n");
    for part in parts {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

fn press(table: &mut Table, keys: &str) -> Option<Wish> {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        'v' => KeyCode::Down,
        key => KeyCode::Char(key),
    };
    keys.chars().map(|key| table.on_key(code(key).into())).last().flatten()
}

#[test]
fn a_screen_shows_the_locks_with_most_waiters_first() {
    let lines = screen(&mut three(), (80, 24));
    let expected = [
        "fencelock top  redis://locks.example:6379",
        "3 locks, 2 waiting, longest wait 3 min 10 s; 0 s ago",
        "KEY               HELD FOR     ENDS IN WAITING      WAITED HOLDER",
        "report/daily     1 h 6 min      20.5 s       2  3 min 10 s web-1:2 (nightly)",
        "backup                 3 s      20.5 s       0           - web-1:1 (nightly)",
    ];
    assert_eq!(lines[..5], expected, "{lines:#?}");
    // A wide character has an empty cell behind it.
    assert!(
        lines[5].starts_with("订 单  ") && lines[5].contains("1 min      20.5 s       0           -"),
        "{lines:#?}"
    );
    assert_eq!(lines[23], "enter details  s sort (waiting)  r reverse  / filter  b break  q quit");
    assert!(lines[6..23].iter().all(String::is_empty), "{lines:#?}");
}

#[test]
fn the_order_changes_and_the_selected_lock_stays_selected() {
    let mut table = three();
    press(&mut table, "v");
    let first = |table: &Table| table.locks().next().unwrap().key.to_string();
    assert_eq!((first(&table), table.selected), ("report/daily".to_owned(), 1));
    press(&mut table, "r");
    assert_eq!((first(&table), table.selected), ("backup".to_owned(), 0), "backup is still selected");
    press(&mut table, "rss");
    assert_eq!(first(&table), "report/daily", "the longest held");
    press(&mut table, "r");
    assert_eq!(first(&table), "backup");
    table.on_list(vec![held("a", 1, 1), held("backup", 1, 3)], Instant::now());
    assert_eq!(table.locks().nth(table.selected).unwrap().key.as_str(), "backup", "after a list");
}

#[test]
fn every_column_orders() {
    let (daily, backup) = ([By::Waiting, By::Waited, By::Held], [By::Ends, By::Key, By::Holder]);
    for (by, first) in daily.map(|by| (by, "report/daily")).into_iter().chain(backup.map(|by| (by, "backup"))) {
        let mut table = Table::new(String::new(), true, by);
        table.on_list(three().locks().cloned().collect(), Instant::now());
        assert_eq!(table.locks().next().unwrap().key.as_str(), first, "{by:?}");
    }
}

#[test]
fn a_filter_finds_keys_and_holders() {
    let mut table = three();
    press(&mut table, "/DAILY");
    assert_eq!(table.locks().count(), 1);
    shows(&mut table, &["1 lock of 3, 2 waiting", "filter: daily_"]);
    press(&mut table, "\x1b/web-1:3\n");
    assert_eq!(table.locks().map(|held| held.key.as_str()).collect::<Vec<_>>(), ["订单"]);
    assert_eq!(press(&mut table, "q"), Some(Wish::Quit), "the filter is no longer typed");
    press(&mut table, "\x1b");
    assert_eq!(table.locks().count(), 3);
}

#[test]
fn details_show_the_waiters_and_follow_the_lock() {
    let mut table = three();
    assert_eq!(press(&mut table, "\n"), Some(Wish::Inspect(Key::new("report/daily").unwrap())));
    shows(&mut table, &["report/daily: held by web-1:2 (nightly)", "fencing token 17"]);
    shows(&mut table, &["end process 2 on web-1, or break the lock (b)", "waiting 1: web-1:7 (nightly), for 3 min"]);
    let narrow = screen(&mut table, (40, 24));
    assert_eq!(narrow[2..4], ["report/daily: held by web-1:2 (nightly)", "for 1 h 6 min, ends in 20.5 s unless"]);
    assert!(narrow[5..].contains(&"  waiting 1: web-1:7 (nightly), for 3".to_owned()), "{narrow:#?}");
    table.on_inspection(Some(held("backup", 1, 3)), Instant::now());
    // A late reply about another lock changes nothing.
    shows(&mut table, &["web-1:7"]);
    assert_eq!(table.on_tick(), Some(Wish::Inspect(Key::new("report/daily").unwrap())));
    table.on_inspection(None, Instant::now());
    shows(&mut table, &["report/daily: free now"]);
    assert_eq!(press(&mut table, "\x1b"), None);
    assert_eq!(table.on_tick(), None, "nothing is inspected behind the list");
}

#[test]
fn details_of_a_kept_lock_name_the_process_whose_end_frees_it() {
    let owner = Owner::new("web-1", 7, Some("while 42 claude: edit")).unwrap();
    let hold = HolderInfo::new(Occupant::Holder(Holder { owner, ..holder(7) }), Expiry::Never);
    let key = Key::new("k").unwrap();
    let shown = Table::details(&key, Some(&Holding::new(key.clone(), hold))).join("\n");
    assert!(shown.contains("to free it, end process 42 on web-1, for which process 7 keeps it"), "{shown}");
}

#[test]
fn many_waiters_are_scrolled() {
    let queue = (0..100).map(|n| waiter(n, 1)).collect();
    let mut table = table(vec![held("k", 1, 1).with_waiters(250).with_queue(Some(queue))]);
    press(&mut table, "\n");
    let lines = screen(&mut table, (80, 24));
    assert!(lines.concat().contains("waiting 1: ") && !lines.concat().contains("and 150 more"), "{lines:#?}");
    press(&mut table, &"v".repeat(200));
    shows(&mut table, &["waiting 100: ", "and 150 more waiting"]);
}

#[test]
fn nothing_is_broken_without_a_yes() {
    for (keys, broken) in [("by", true), ("bY", true), ("bn", false), ("b\n", false), ("bq", false), ("b\x1b", false)] {
        let mut table = three();
        let wish = press(&mut table, keys);
        assert_eq!(matches!(wish, Some(Wish::Break(_))), broken, "{keys:?}");
        assert_eq!(wish.is_some(), broken, "{keys:?}: a no does not quit");
        shows(&mut table, &[if broken { "breaking report/daily" } else { "nothing was broken" }]);
    }
}

#[test]
fn a_question_is_shown_whole_and_a_resize_is_no_answer() {
    let mut table = three();
    press(&mut table, "b");
    assert_eq!(table.on_key(KeyCode::Null.into()), None);
    let lines = screen(&mut table, (80, 24));
    let question = "Break report/daily, held by web-1:2 (nightly) for 1 h 6 min, ends in 20.5 s unless renewed, 2 waiting? It \
                    does not stop the holder. y/n";
    assert_eq!(lines[22..].join(" "), question);
    table.on_list(vec![held("report/daily", 9, 1)], Instant::now());
    let Some(Wish::Break(seen)) = press(&mut table, "y") else { panic!("not broken") };
    assert_eq!(seen.first().holder_id(), Some(holder(2).id), "what was asked about, not what is there now");
    assert_eq!(press(&mut table, "by"), None, "one at a time");
    table.on_notice("report/daily is now held by web-1:9: nothing was done".to_owned());
    shows(&mut table, &["nothing was done"]);
}

#[test]
fn of_several_holders_none_is_broken_here() {
    let mut table = table(vec![held("k", 1, 1).with_holder(held("k", 2, 1).first().clone())]);
    assert_eq!(press(&mut table, "by"), None);
    shows(&mut table, &["k has 2 holders: fencelock break --holder PREFIX k"]);
}

#[test]
fn control_c_quits_and_control_z_stops_everywhere() {
    for keys in ["", "/", "\n", "b"] {
        let mut table = three();
        press(&mut table, keys);
        let mut control = |key| table.on_key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
        assert_eq!((control('z'), control('c')), (Some(Wish::Stop), Some(Wish::Quit)), "{keys:?}");
    }
}

#[test]
fn trouble_is_shown_beside_the_last_list_to_its_end() {
    let mut table = three();
    let trouble = "the backend of the locks cannot be reached: redis://locks.example:6379: connection refused";
    table.trouble = Some(trouble.to_owned());
    let lines = screen(&mut table, (80, 24));
    assert!(lines[1].starts_with("3 locks, 2 waiting, longest wait 3 min 10 s 0 s ago; now: the"), "{lines:#?}");
    assert!(lines[2].ends_with("connection refused") && lines[3].starts_with("KEY "), "{lines:#?}");
    table.on_list(Vec::new(), Instant::now());
    shows(&mut table, &["0 locks, 0 waiting; 0 s ago"]);
}

#[test]
fn the_selected_lock_is_on_the_screen_whatever_its_size() {
    let mut table = table((0..5000).map(|n| held(&format!("k{n:04}"), n, 1)).collect());
    for size in [(80, 24), (30, 5), (1, 1), (300, 100), (80, 24)] {
        for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Home, KeyCode::PageDown] {
            table.on_key(key.into());
            let selected = format!("k{:04}", table.selected);
            let lines = screen(&mut table, size);
            assert!(size.1 < 5 || lines.iter().any(|line| line.contains(&selected)), "{size:?} {selected}: {lines:#?}");
        }
    }
}

#[test]
fn without_a_queue_no_number_of_waiters_is_shown() {
    let mut table = Table::new("file:/run/locks".to_owned(), false, By::Key);
    table.on_list(vec![held("k", 1, 1).with_queue(None)], Instant::now());
    let lines = screen(&mut table, (80, 24));
    assert!(lines[1].starts_with("1 lock; ") && lines[3].contains(" -           - web-1"), "{lines:#?}");
    assert_eq!(table.totals().waiters, None);
}

#[test]
fn many_locks_and_a_slow_server_are_listed_less_often() {
    let (second, short) = (Duration::from_secs(1), Duration::from_millis(1));
    let locks = |count| Ok(vec![held("k", 1, 1); count]);
    assert_eq!(pause(2 * second, short, &locks(10)), 2 * second);
    assert_eq!(pause(2 * second, short, &locks(5000)), 5 * second);
    assert_eq!(pause(2 * second, second, &locks(10)), 19 * second);
    let failed = Err(fencelock::Error::unreachable(fencelock::Unknown::new("a:1", fencelock::Fault::Timeout, "")));
    assert_eq!(pause(2 * second, second, &failed), 4 * second);
}

/// The locks of looks at these seconds, each with the holder of the key `k` and the remaining ms of its lease, and what was seen.
fn watched(looks: &[(u64, u32, u64)]) -> (Option<Liveness>, Watch) {
    let (mut watch, start) = (Watch::default(), Instant::now());
    let mut alive = None;
    for (at, holder, left) in looks {
        let mut held = held("k", *holder, 1);
        let ends = Expiry::In(Duration::from_millis(*left));
        held.holders = held.holders.map(|hold| HolderInfo::new(hold.occupant, ends));
        let now = start + Duration::from_secs(*at);
        // The server is asked a tenth of a second before its reply is complete.
        let asked = now.checked_sub(Duration::from_millis(100)).unwrap_or(now);
        alive = watch.on_list(vec![held], (asked, now))[0].first().alive;
    }
    (alive, watch)
}

#[test]
fn renewals_are_seen_by_the_end_of_a_lease_that_moves() {
    let seen = |looks: &[_]| watched(looks).0;
    let renewed = |ago, every| {
        Some(Liveness::Renewed { ago: Duration::from_millis(ago), every: Some(Duration::from_millis(every)) })
    };
    assert_eq!(seen(&[(0, 1, 25_000)]), None, "nobody knows when the first renewal was");
    assert_eq!(seen(&[(0, 1, 25_000), (4, 1, 21_050)]), None, "a reply that took its time is no renewal");
    // A lease of 30 s that was granted at -5, and renewed at 5.
    let looks = [(0, 1, 25_000), (4, 1, 21_000), (8, 1, 27_000), (12, 1, 23_000)];
    assert_eq!(seen(&looks[..3]), renewed(0, 10_000), "no later than the look that shows it");
    assert_eq!(seen(&looks), renewed(4000, 10_000));
    // Renewed again at 15 and not at 25: since a look has followed a renewal at once, its time is known.
    let looks = [&looks[..], &[(15, 1, 30_000), (16, 1, 29_000), (28, 1, 17_000)]].concat();
    assert_eq!(seen(&looks), renewed(13_000, 10_000));
    assert!(seen(&looks).unwrap().is_overdue());
    assert_eq!(seen(&[&looks[..], &[(29, 2, 30_000)]].concat()), None, "another holder");
}

#[test]
fn an_overdue_renewal_is_marked_and_explained() {
    let overdue = |key, secs| {
        let mut held = held(key, 1, 100);
        let alive = Liveness::of_lease(Duration::from_secs(secs), Duration::from_secs(30));
        held.holders = held.holders.map(|hold| hold.with_alive(Some(alive)));
        held
    };
    let mut table = table(vec![overdue("late", 14), overdue("quick", 3)]);
    let lines = screen(&mut table, (80, 24));
    assert!(lines[3].starts_with("late            1 min 40 s    ! 20.5 s "), "{lines:#?}");
    assert!(lines[4].starts_with("quick           1 min 40 s      20.5 s "), "{lines:#?}");
    let wide = screen(&mut table, (100, 24))[2..4].concat();
    assert!(wide.contains("ENDS IN     RENEWED WAITING") && wide.contains("! 20.5 s        14 s       0"), "{wide}");
    let red: String =
        draw(&mut table, (80, 24)).content.iter().filter(|cell| cell.fg == Color::Red).map(Cell::symbol).collect();
    assert_eq!(red, "! 20.5 s", "what is late, and nothing else, has a colour");
    press(&mut table, "\n");
    let shown = screen(&mut table, (80, 24)).join(" ");
    assert!(shown.contains("no renewal for 14 s, expected every 10 s, ends in 20.5 s"), "{shown}");
}

#[test]
fn grants_are_counted_by_holders_that_were_not_there_before() {
    let rate = |looks: &[_]| watched(looks).1.grants_per_second;
    assert_eq!(rate(&[(0, 1, 9000)]), None, "before, nothing was seen");
    assert_eq!(rate(&[(0, 1, 9000), (2, 1, 9000)]), Some(0.0));
    assert_eq!(rate(&[(0, 1, 9000), (2, 2, 9000)]), Some(0.5));
    let mut table = three();
    let more = (0..3000).map(|n| held(&format!("k{n}"), n + 10, 1)).collect();
    table.on_list(more, Instant::now());
    shows(&mut table, &[" grants/s seen; 0 s ago"]);
}

/// Keys and labels that are hard to draw.
fn odd() -> Table {
    let (long, wide) = ("k".repeat(512), "订".repeat(170));
    let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}";
    let marks = ["e\u{301}\u{301}\u{301}", "\u{ff76}\u{ff9e}", "\u{26a0}\u{fe0f}", "1\u{fe0f}\u{20e3}"];
    let keys = ["a", &long, &wide, family, "\u{202e}rtl", "\u{5d0}\u{5d1}", "\u{1f1e9}\u{1f1ea}"];
    let mut locks: Vec<_> = keys.iter().chain(&marks).map(|key| held(key, 1, 3)).collect();
    let label = format!("{wide}\u{1b}[31mred\r\n\u{9b}");
    let by = Occupant::from_wire(&format!("{} 主机:7 {label}", "ab".repeat(16)));
    locks.push(Holding::new(Key::new("label").unwrap(), HolderInfo::new(by, Expiry::Never)));
    table(locks)
}

#[test]
fn no_key_and_no_label_breaks_the_screen_at_any_size() {
    for size in [(80, 24), (120, 30), (60, 10), (40, 8), (20, 6), (10, 4), (7, 3), (3, 2), (2, 1), (1, 1), (500, 150)] {
        for keys in ["", "v", "vvvv\n", "b", "b\n/订", "/\u{1f468}", "\nvvvvvvvvvvvv"] {
            let mut table = odd();
            press(&mut table, keys);
            let lines = screen(&mut table, size);
            assert!(
                !lines.concat().chars().any(|c| c.is_control() || c == '\u{202e}'),
                "{size:?} {keys:?}: {lines:#?}"
            );
        }
    }
}

#[test]
fn columns_stay_under_their_heads_whatever_the_keys_are() {
    for width in [60, 80, 120] {
        let buffer = draw(&mut odd(), (width, 24));
        let from = |x: u16, y| (x..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        let column = (0..width).find(|x| from(*x, 2).starts_with("HELD FOR")).unwrap();
        for row in 3..14 {
            let cell = from(column + 4, row);
            assert!(
                [" 3 s ", "   ? "].iter().any(|shown| cell.starts_with(shown)),
                "{width} {row}: {:?}",
                from(0, row)
            );
        }
    }
}

#[test]
fn without_a_lock_there_is_nothing_to_select_or_break() {
    let mut table = table(Vec::new());
    for keys in ["v", "b", "y", "\n", "/x\n", "s", "r"] {
        assert_eq!(press(&mut table, keys), None, "{keys:?}");
    }
    shows(&mut table, &["0 locks, 0 waiting"]);
    assert_eq!(table.to_string(), "redis://locks.example:6379: 0 locks, 0 waiting\n");
}
