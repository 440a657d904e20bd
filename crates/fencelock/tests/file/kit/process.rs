//! Another process that takes locks on command: this test binary, running the test `obey`.

use super::{TIMEOUT, acquire, claim, downgrade, free, listen, now, permits};
use fencelock::backends::File;
use fencelock_core::{Acquire, Backend, Claim, FencingToken, Intent, Mode};
use fencelock_testkit::TestProcess;
use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where the process finds its locks; without it, the obeying test has nothing to do.
const DIR: &str = "FENCELOCK_TEST_DIR";
/// The test harness writes to the same output.
const MARK: &str = "> ";

pub(crate) struct Process(TestProcess);

impl Process {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_as(dir, None).unwrap()
    }

    /// As another user, which only root may do.
    pub(crate) fn start_as(dir: &Path, user: Option<u32>) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(user) = user {
            command.uid(user).gid(user).current_dir("/");
        }
        Self::spawn(command, dir)
    }

    /// With another umask, in three octal digits.
    pub(crate) fn start_with_umask(dir: &Path, umask: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0 && exec \"$@\"", umask]).arg(std::env::current_exe().unwrap());
        Self::spawn(command, dir).unwrap()
    }

    fn spawn(mut command: Command, dir: &Path) -> std::io::Result<Self> {
        command.args(["obey", "--exact", "--nocapture"]).env(DIR, dir);
        TestProcess::spawn(command).map(Self)
    }

    pub(crate) fn order(&mut self, order: &str) {
        self.0.send(order);
    }

    /// The next answer; `None` once the process has ended.
    pub(crate) fn answer(&mut self) -> Option<String> {
        // The harness writes before the first mark of the line.
        self.0.receive(MARK)
    }

    pub(crate) fn request(&mut self, order: &str) -> String {
        self.order(order);
        self.answer().unwrap_or_else(|| panic!("the process ended on {order:?}"))
    }

    /// Takes a free key.
    pub(crate) fn take(&mut self, name: &str) -> FencingToken {
        self.take_in_mode("try", name)
    }

    /// Takes a key that has room, with an order that names the mode: `try`, `share`, or `permits WEIGHT LIMIT`.
    pub(crate) fn take_in_mode(&mut self, mode: &str, name: &str) -> FencingToken {
        let answer = self.request(&format!("{mode} {name}"));
        answer.strip_prefix("granted ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// `kill -9`, and until it is gone.
    pub(crate) fn kill(mut self) {
        self.0.kill();
    }
}

/// The other side: obeys until its input ends. Every test binary that starts processes has a test `obey` for it.
pub(crate) fn obey() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let locks = File::open(&dir);
    let mut held = HashMap::new();
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let words: Vec<_> = order.split(' ').collect();
        let answer = match (&locks, &words[..]) {
            (Ok(_), ["open"]) => "open".to_owned(),
            (Err(unknown), _) => format!("permanent={} {unknown}", unknown.is_permanent()),
            (Ok(locks), ["try", name]) => attempt(locks, name, Mode::Exclusive, &mut held),
            (Ok(locks), ["share", name]) => attempt(locks, name, Mode::Shared, &mut held),
            (Ok(locks), ["permits", weight, limit, name]) => {
                let mode = permits(weight.parse().unwrap(), limit.parse().unwrap());
                attempt(locks, name, mode, &mut held)
            }
            (Ok(locks), ["wait", name]) => {
                let (claim, fence) = wait(locks, name);
                held.insert((*name).to_owned(), claim);
                format!("granted {fence}")
            }
            (Ok(locks), ["free", name]) => format!("{:?}", free(locks, &held[*name])),
            (Ok(locks), ["downgrade", name]) => format!("{:?}", downgrade(locks, &held[*name])),
            (Ok(_), ["sleeper"]) => sleeper().to_string(),
            (Ok(_), ["watchers", name]) => watchers(Path::new(&dir), name),
            _ => panic!("no such order: {order}"),
        };
        println!("{MARK}{answer}");
    }
}

fn attempt(locks: &File, name: &str, mode: Mode, held: &mut HashMap<String, Claim>) -> String {
    let claim = claim(name, Intent::Try).with_mode(mode);
    match now(locks.acquire(&claim)).answer {
        Ok(Acquire::Granted { tokens }) => {
            let fence = tokens.last();
            held.insert(name.to_owned(), claim);
            format!("granted {fence}")
        }
        Ok(Acquire::Busy(occupied)) => format!("busy {}", occupied.holders),
        Ok(Acquire::Conflict(present)) => format!("conflict with {}", present.class()),
        Ok(other) => panic!("{other:?}"),
        Err(unknown) => format!("permanent={} {unknown}", unknown.is_permanent()),
    }
}

/// Waits as a client does: woken by events, and with a poll from time to time.
pub(crate) fn wait(locks: &File, name: &str) -> (Claim, FencingToken) {
    let (_ears, events) = listen(locks);
    let claim = claim(name, Intent::Enqueue);
    loop {
        match acquire(locks, &claim) {
            Acquire::Granted { tokens } => return (claim, tokens.last()),
            _ => drop(events.recv_timeout(Duration::from_millis(250))),
        }
    }
}

/// A process that was executed while locks were held, and outlives this one.
fn sleeper() -> u32 {
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap().id()
}

/// Whether a thread watches a directory while a task waits for a key, and after the locks are dropped.
fn watchers(dir: &Path, name: &str) -> String {
    let locks = File::open(dir).unwrap();
    let Acquire::Busy(_) = acquire(&locks, &claim(name, Intent::Enqueue)) else { return "free".into() };
    let began = eventually(|| watching_threads() == 1);
    drop(locks);
    let ended = eventually(|| watching_threads() == 0);
    format!("began {began}, ended {ended}")
}

/// A thread begins, has its name, and ends in its own time.
pub(crate) fn eventually(fact: impl Fn() -> bool) -> bool {
    (0..TIMEOUT.as_millis()).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        fact()
    })
}

fn watching_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "fencelock-file").count()
}
