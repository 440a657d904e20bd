//! `fencelock top` on a terminal of 80x24, and without one.

use crate::backend::TestBackend;
use crate::running::{Running, hold, wait_for_waiters, wait_until};
use crate::terminal::{TYPESCRIPT, on_a_terminal};
use crate::test::{BINARY, Test};
use fencelock_testkit::Reply;
use serde_json::Value;

const WIDTH: usize = 80;
const HEIGHT: usize = 24;

/// What a terminal of 80x24 shows after this output: text, moves of the cursor, and clearing. Colours are left out.
fn screen(output: &str) -> Vec<String> {
    let mut lines = vec![vec![' '; WIDTH]; HEIGHT];
    let (mut x, mut y) = (0, 0);
    let mut rest = output.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' if rest.clone().next() == Some('[') => {
                rest.next();
                let mut numbers = String::new();
                let end = rest.by_ref().find(|c| c.is_ascii_alphabetic() || (numbers.push(*c), false).1);
                let number = |at: usize| numbers.split(';').nth(at).and_then(|n| n.parse::<usize>().ok()).unwrap_or(1);
                match end {
                    Some('H') => (y, x) = (number(0) - 1, number(1) - 1),
                    Some('J') => lines.iter_mut().for_each(|line| line.fill(' ')),
                    _ => {}
                }
            }
            '\r' => x = 0,
            '\n' => y = (y + 1).min(HEIGHT - 1),
            c if y < HEIGHT && x < WIDTH && !c.is_control() => {
                lines[y][x] = c;
                x += 1;
            }
            _ => {}
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect()
}

/// `top` on a terminal.
struct Shown<'a> {
    backend: &'a TestBackend,
    running: Running,
}

impl<'a> Shown<'a> {
    fn start(backend: &'a TestBackend, options: &str) -> Self {
        let line = format!("stty cols {WIDTH} rows {HEIGHT}; {BINARY} top {options}; stty -a | grep -ow -e '-*echo'");
        Self { backend, running: on_a_terminal(backend, &line) }
    }

    /// The screen, when it shows all of these.
    fn shows(&self, parts: &[&str]) -> Vec<String> {
        self.shows_what(&format!("{parts:?}"), |lines| {
            let whole = lines.join("\n");
            parts.iter().all(|part| whole.contains(part))
        })
    }

    /// The screen, when it is as it should be.
    fn shows_what(&self, what: &str, is_right: impl Fn(&[String]) -> bool) -> Vec<String> {
        wait_until(what, || {
            let output = std::fs::read(self.backend.file(TYPESCRIPT)).unwrap_or_default();
            let lines = screen(&String::from_utf8_lossy(&output));
            is_right(&lines).then_some(lines)
        })
    }

    fn press(&mut self, keys: &str) {
        self.running.say(keys);
    }

    /// Ends by itself, and leaves the terminal as it was.
    fn ends(self) {
        let output = self.running.end();
        assert_eq!(output.status, 0, "{}", output.stdout);
        let (_, after) = output.stdout.rsplit_once("\x1b[?1049l").expect("the screen is left");
        assert!(after.contains("\x1b[?25h") && after.ends_with("echo\r\n") && !after.contains("-echo"), "{after:?}");
    }
}

#[test]
fn the_screen_shows_locks_and_waiters_and_follows_them() {
    let Some(backend) = TestBackend::redis() else { return };
    let (_quiet, mut busy) = (hold(&backend, "--label nightly quiet"), hold(&backend, "--label nightly report/daily"));
    let waiter = Test::new(&backend, "-q run --label patient report/daily -- true").start();
    // The first list already has it: the lock that is selected stays selected when a later list has another order.
    wait_for_waiters(&backend, "report/daily", 1);
    let mut top = Shown::start(&backend, "--interval 1s");
    let lines = top.shows(&["2 locks, 1 waiting, longest wait ", "report/daily"]);
    assert!(lines[0].starts_with("fencelock top  redis://127.0.0.1:"), "{lines:#?}");
    assert!(lines[2].starts_with("KEY ") && lines[2].ends_with(" HOLDER"), "{lines:#?}");
    assert!(lines[3].starts_with("report/daily ") && lines[3].contains("(nightly"), "most waiters first: {lines:#?}");
    assert!(lines[4].starts_with("quiet "), "{lines:#?}");
    assert!(lines[23].ends_with("q quit"), "{lines:#?}");
    top.press("\r");
    let lines = top.shows(&["report/daily: held by ", "waiting 1: ", "(patient), for "]);
    assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
    busy.say("\n");
    assert_eq!((busy.end().status, waiter.end().status), (0, 0));
    top.shows(&["report/daily: free"]);
    top.press("q");
    top.shows(&["1 lock, 0 waiting; "]);
    top.press("/nothing");
    top.shows(&["0 locks of 1, 0 waiting", "filter: nothing_"]);
    top.press("\x1b");
    top.shows(&["1 lock, 0 waiting; ", "q quit"]);
    top.press("q");
    top.ends();
}

#[test]
fn a_lock_is_broken_after_a_yes() {
    let Some(backend) = TestBackend::redis() else { return };
    Test::new(&backend, "-q acquire --ttl 100s --label stuck k").ok();
    let mut top = Shown::start(&backend, "");
    top.shows(&["1 lock, 0 waiting"]);
    top.press("b");
    top.shows(&["Break k, held by ", "(stuck) for ", "It does not stop the", "y/n"]);
    top.press("n");
    top.shows(&["nothing was broken"]);
    Test::new(&backend, "-q status k").status(75).run();
    top.press("b");
    top.shows(&["y/n"]);
    top.press("y");
    top.shows(&["0 locks, 0 waiting", "k: broke the lock held by "]);
    Test::new(&backend, "-q status k").run();
    top.press("\x03");
    top.ends();
}

#[test]
fn a_signal_ends_the_screen_and_restores_the_terminal() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "--label nightly k");
    let line =
        format!("stty cols 80 rows 24; sh -c 'echo $$ > pid; exec {BINARY} top'; stty -a | grep -ow -e '-*echo'");
    let shown = Shown { backend: &backend, running: on_a_terminal(&backend, &line) };
    let lines = shown.shows(&["1 lock; "]);
    assert!(lines[3].starts_with("k ") && lines[3].contains(" -           - "), "files have no queue: {lines:#?}");
    let pid = std::fs::read_to_string(backend.file("pid")).unwrap();
    crate::running::send(pid.trim(), "TERM");
    shown.ends();
}

#[test]
fn a_terminal_with_another_size_is_drawn_anew() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "--label nightly k");
    let line = format!("tty > tty; stty cols 80 rows 24; {BINARY} top; stty -a | grep -ow -e '-*echo'");
    let mut top = Shown { backend: &backend, running: on_a_terminal(&backend, &line) };
    top.shows(&["1 lock; ", "k  ", "q quit"]);
    let tty = std::fs::read_to_string(backend.file("tty")).unwrap();
    for (cols, rows) in [("40", "6"), ("20", "4"), ("80", "24")] {
        let size = ["-F", tty.trim(), "cols", cols, "rows", rows];
        assert!(std::process::Command::new("stty").args(size).status().unwrap().success());
        let last: usize = rows.parse::<usize>().unwrap() - 1;
        let lines = top.shows_what(&format!("{cols}x{rows}"), |lines| {
            lines[last].starts_with("enter details") && lines[last + 1..].iter().all(String::is_empty)
        });
        let width: usize = cols.parse().unwrap();
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        assert!(lines[3].starts_with("k ") || rows == "4", "{lines:#?}");
    }
    top.press("q");
    top.ends();
}

/// As after `nohup`, or in a shell that ends without a signal to its jobs: reads and writes fail from then on.
#[test]
fn the_screen_ends_when_its_terminal_is_gone_although_hup_is_ignored() {
    let backend = TestBackend::files();
    let line = format!("trap '' HUP; stty cols 80 rows 24; sh -c 'echo $$ > pid; exec {BINARY} top'");
    let top = Shown { backend: &backend, running: on_a_terminal(&backend, &line) };
    top.shows(&["0 locks; ", "q quit"]);
    let pid = std::fs::read_to_string(backend.file("pid")).unwrap();
    // It kills the terminal.
    drop(top);
    wait_until("the end of the program", || (!crate::running::is_alive(pid.trim())).then_some(()));
}

#[test]
fn a_server_that_ends_is_shown_and_does_not_end_the_screen() {
    let Some(mut backend) = TestBackend::redis() else { return };
    Test::new(&backend, "-q acquire --ttl 100s k").ok();
    let server = backend.redis.take();
    let mut top = Shown::start(&backend, "--interval 1s");
    top.shows(&["1 lock, 0 waiting; "]);
    drop(server);
    let lines = top.shows(&["ago; now: "]);
    assert!(lines.iter().any(|line| line.starts_with("k  ")), "the last list stays: {lines:#?}");
    top.shows(&["refused"]);
    top.press("q");
    top.ends();
}

#[test]
fn without_a_terminal_the_table_is_written_once() {
    for backend in TestBackend::every_kind() {
        let _holder = hold(&backend, "--label nightly k");
        let output = Test::new(&backend, "top --once").output();
        let lines: Vec<_> = output.stdout.lines().collect();
        assert!(output.status == 0 && lines.len() == 3, "{}{}", output.stdout, output.stderr);
        assert!(lines[0].contains(": 1 lock") && lines[1].starts_with("KEY  HELD FOR  "), "{lines:#?}");
        assert!(lines[2].starts_with("k    ") && lines[2].ends_with("(nightly)"), "{lines:#?}");
        let json: Value = Test::new(&backend, "--json top --once").json();
        let waiters = if backend.redis.is_some() { 0.into() } else { Value::Null };
        assert_eq!((&json["lock_count"], &json["waiters"]), (&1.into(), &waiters), "{json}");
        assert_eq!(json["locks"][0]["key"], "k");
        Test::new(&backend, "top --once other").stdout("*: 0 locks*\n").run();
    }
}

#[test]
fn a_screen_needs_a_terminal() {
    let backend = TestBackend::files();
    let advice = "fencelock: the output is not a terminal: add --once\n";
    Test::new(&backend, "top").stderr(advice).status(64).run();
    on_a_terminal(&backend, &format!("TERM=dumb {BINARY} top")).wait_for("(TERM=dumb): add --once");
    assert_eq!(Test::new(&backend, "--json top").output().status, 64);
    assert_eq!(Test::new(&backend, "top --interval 0.1").output().status, 64);
    assert!(!backend.file("locks").exists(), "what looks creates no directory");
}

#[test]
fn the_number_of_commands_is_bounded() {
    let Some(backend) = TestBackend::redis() else { return };
    let locks = 1500;
    for n in 0..locks {
        let value = format!("{n:032x} web-1:{n} job");
        backend.server().command(&["SET", &format!("k{n}"), &value, "PX", "600000"]);
        backend.server().command(&["SET", &format!("fencelock:{{k{n}}}:fence"), "1780000000000000"]);
    }
    let calls = || {
        let Reply::Text(stats) = backend.server().command(&["INFO", "commandstats"]) else { panic!("no text") };
        let of = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
        };
        of("evalsha") + of("eval")
    };
    let mut top = Shown::start(&backend, "--interval 1s");
    top.shows(&["1500 locks, 0 waiting"]);
    let (before, begun) = (calls(), tokio::time::Instant::now());
    top.press("\r");
    top.shows(&["held by web-1:"]);
    wait_until("three lists", || (calls() - before >= 3 * locks).then_some(()));
    // At most one in each ms, but a list may begin at once, and one lock is inspected once a second.
    let (sent, millis) = (calls() - before, u64::try_from(begun.elapsed().as_millis()).unwrap());
    assert!(sent <= millis + 2 * locks + 10, "{sent} in {millis} ms");
    top.press("qq");
    top.ends();
}
