//! The screen without a terminal: what is shown at 80x24, and what a key does.

use super::args::By;
use super::screen::render;
use super::table::{Order, Table, Wish};
use super::{Holding, pause};
use fencelock::contract::{Holder, WaiterInfo};
use fencelock::{Expiry, FencingToken, HolderInfo, Key, Mode, Occupant, Owner};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

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
    let order = Order { by: By::Waiting, reversed: false };
    let mut table = Table::new("redis://locks.example:6379".to_owned(), true, order);
    table.on_list(locks);
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

/// The lines of a screen of this size, without white space at their ends.
fn screen(table: &mut Table, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render(frame, table)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn on_80x24(table: &mut Table) -> String {
    screen(table, (80, 24)).join("\n")
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
        "KEY            HELD FOR    ENDS IN     WAITING WAITED      HOLDER",
        "report/daily   1 h 6 min   20.5 s      2       3 min 10 s  web-1:2 (nightly)",
        "backup         3 s         20.5 s      0       -           web-1:1 (nightly)",
    ];
    assert_eq!(lines[..5], expected, "{lines:#?}");
    // A wide character has an empty cell behind it.
    assert!(lines[5].starts_with("订 单  ") && lines[5].contains("1 min       20.5 s      0       -"), "{lines:#?}");
    assert_eq!(lines[23], "enter details  s sort (waiting)  r reverse  / filter  b break  q quit");
    assert!(lines[6..23].iter().all(String::is_empty), "{lines:#?}");
}

#[test]
fn the_order_changes_and_the_selected_lock_stays_selected() {
    let mut table = three();
    press(&mut table, "v");
    let first = |table: &Table| table.locks().next().unwrap().key.to_string();
    assert_eq!((first(&table), table.selected()), ("report/daily".to_owned(), 1));
    press(&mut table, "r");
    assert_eq!((first(&table), table.selected()), ("backup".to_owned(), 0), "backup is still selected");
    press(&mut table, "rss");
    assert_eq!(first(&table), "report/daily", "the longest held");
    press(&mut table, "r");
    assert_eq!(first(&table), "backup");
    table.on_list(vec![held("a", 1, 1), held("backup", 1, 3)]);
    assert_eq!(table.locks().nth(table.selected()).unwrap().key.as_str(), "backup", "after a list");
}

#[test]
fn every_column_orders() {
    for (by, first) in [
        (By::Waiting, "report/daily"),
        (By::Waited, "report/daily"),
        (By::Held, "report/daily"),
        (By::Ends, "backup"),
        (By::Key, "backup"),
        (By::Holder, "backup"),
    ] {
        let mut table = Table::new(String::new(), true, Order { by, reversed: false });
        table.on_list(three().locks().cloned().collect());
        assert_eq!(table.locks().next().unwrap().key.as_str(), first, "{by:?}");
    }
}

#[test]
fn a_filter_finds_keys_and_holders() {
    let mut table = three();
    press(&mut table, "/DAILY");
    assert_eq!(table.locks().count(), 1);
    assert!(on_80x24(&mut table).contains("1 lock of 3, 2 waiting"));
    assert!(on_80x24(&mut table).contains("filter: daily_"));
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
    let shown = on_80x24(&mut table);
    for part in
        ["report/daily: held by web-1:2 (nightly)", "fencing token 17", "waiting 1: web-1:7 (nightly), for 3 min"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let narrow = screen(&mut table, (40, 24));
    assert_eq!(narrow[2..4], ["report/daily: held by web-1:2 (nightly)", "for 1 h 6 min, ends in 20.5 s unless"]);
    assert!(narrow[5..].contains(&"  waiting 1: web-1:7 (nightly), for 3".to_owned()), "{narrow:#?}");
    table.on_inspection(Some(held("backup", 1, 3)));
    assert!(on_80x24(&mut table).contains("web-1:7"), "a late reply about another lock changes nothing");
    assert_eq!(table.on_tick(), Some(Wish::Inspect(Key::new("report/daily").unwrap())));
    table.on_inspection(None);
    assert!(on_80x24(&mut table).contains("report/daily: free"));
    assert_eq!(press(&mut table, "\x1b"), None);
    assert_eq!(table.on_tick(), None, "nothing is inspected behind the list");
}

#[test]
fn many_waiters_are_scrolled() {
    let queue = (0..100).map(|n| waiter(n, 1)).collect();
    let mut table = table(vec![held("k", 1, 1).with_waiters(250).with_queue(Some(queue))]);
    press(&mut table, "\n");
    assert!(on_80x24(&mut table).contains("waiting 1: ") && !on_80x24(&mut table).contains("and 150 more"));
    press(&mut table, &"v".repeat(200));
    let shown = on_80x24(&mut table);
    assert!(shown.contains("and 150 more waiting") && shown.contains("waiting 100: "), "{shown}");
}

#[test]
fn nothing_is_broken_without_a_yes() {
    for (keys, broken) in [("by", true), ("bY", true), ("bn", false), ("b\n", false), ("bq", false), ("b\x1b", false)] {
        let mut table = three();
        let wish = press(&mut table, keys);
        assert_eq!(matches!(wish, Some(Wish::Break(_))), broken, "{keys:?}");
        assert_eq!(wish.is_some(), broken, "{keys:?}: a no does not quit");
        let foot = on_80x24(&mut table);
        assert!(foot.contains(if broken { "breaking report/daily" } else { "nothing was broken" }), "{foot}");
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
    table.on_list(vec![held("report/daily", 9, 1)]);
    let Some(Wish::Break(seen)) = press(&mut table, "y") else { panic!("not broken") };
    assert_eq!(seen.first().holder_id(), Some(holder(2).id), "what was asked about, not what is there now");
    assert_eq!(press(&mut table, "by"), None, "one at a time");
    table.on_notice("report/daily is now held by web-1:9: nothing was done".to_owned());
    assert!(on_80x24(&mut table).contains("nothing was done"));
}

#[test]
fn of_several_holders_none_is_broken_here() {
    let mut table = table(vec![held("k", 1, 1).with_holder(held("k", 2, 1).first().clone())]);
    assert_eq!(press(&mut table, "by"), None);
    assert!(on_80x24(&mut table).contains("k has 2 holders: fencelock break --holder PREFIX k"));
}

#[test]
fn control_c_quits_everywhere() {
    for keys in ["", "/", "\n", "b"] {
        let mut table = three();
        press(&mut table, keys);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(table.on_key(control_c), Some(Wish::Quit), "{keys:?}");
    }
}

#[test]
fn trouble_is_shown_beside_the_last_list() {
    let mut table = three();
    table.on_trouble("redis://locks.example:6379: connection refused".to_owned());
    let shown = on_80x24(&mut table);
    assert!(shown.contains("3 locks, 2 waiting, longest wait 3 min 10 s 0 s ago; now: redis:"), "{shown}");
    table.on_list(Vec::new());
    assert!(on_80x24(&mut table).contains("0 locks, 0 waiting; 0 s ago"));
}

#[test]
fn the_selected_lock_is_on_the_screen_whatever_its_size() {
    let mut table = table((0..5000).map(|n| held(&format!("k{n:04}"), n, 1)).collect());
    for size in [(80, 24), (30, 5), (1, 1), (300, 100), (80, 24)] {
        for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Home, KeyCode::PageDown] {
            table.on_key(key.into());
            let selected = format!("k{:04}", table.selected());
            let lines = screen(&mut table, size);
            assert!(size.1 < 5 || lines.iter().any(|line| line.contains(&selected)), "{size:?} {selected}: {lines:#?}");
        }
    }
}

#[test]
fn text_of_others_cannot_command_the_terminal() {
    let by = Occupant::from_wire(&format!("{} evil:1 \u{1b}[2Jx", "ab".repeat(16)));
    let hold = HolderInfo::new(by, Expiry::Never);
    let mut table = table(vec![Holding::new(Key::new("k").unwrap(), hold)]);
    for keys in ["", "\n"] {
        press(&mut table, keys);
        assert!(!on_80x24(&mut table).contains('\u{1b}'));
    }
    assert!(!table.to_string().contains('\u{1b}'));
}

#[test]
fn without_a_queue_no_number_of_waiters_is_shown() {
    let mut table = Table::new("file:/run/locks".to_owned(), false, Order { by: By::Key, reversed: false });
    table.on_list(vec![held("k", 1, 1).with_queue(None)]);
    let lines = screen(&mut table, (80, 24));
    assert!(lines[1].starts_with("1 lock; ") && lines[3].contains(" -       -           web-1"), "{lines:#?}");
    assert_eq!(table.totals().waiters, None);
}

#[test]
fn many_locks_and_a_slow_server_are_listed_less_often() {
    let (second, short) = (Duration::from_secs(1), Duration::from_millis(1));
    let locks = |count| Ok(vec![held("k", 1, 1); count]);
    assert_eq!(pause(2 * second, short, &locks(10)), 2 * second);
    assert_eq!(pause(2 * second, short, &locks(5000)), 5 * second);
    assert_eq!(pause(2 * second, second, &locks(10)), 19 * second);
}
