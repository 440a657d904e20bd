//! Starts programs that end with this process.

use std::ffi::OsStr;
use std::io::{Error, Result};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

type Order = (Command, Sender<Result<Child>>);

/// Starts a child that the kernel kills when this process ends for any reason.
///
/// Linux sends the signal when the *thread* that started the child ends, and the thread of a test ends with the test. So
/// a single thread that never ends starts all children.
pub fn spawn(command: Command) -> Result<Child> {
    static THREAD: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let (answer, answered) = channel();
    let orders = THREAD.get_or_init(|| Mutex::new(start_thread())).lock().unwrap_or_else(PoisonError::into_inner);
    orders.send((command, answer)).map_err(Error::other)?;
    drop(orders);
    answered.recv().map_err(Error::other)?
}

fn start_thread() -> Sender<Order> {
    let (orders, incoming) = channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in incoming {
            let _ = answer.send(command.spawn());
        }
    });
    orders
}

/// A command that ends with this process if the system has `setpriv` (util-linux), otherwise a normal one.
///
/// `setpriv` executes the program in its own process, so the process id is the same.
pub fn mortal(program: &OsStr) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let there = *SETPRIV.get_or_init(|| {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", "KILL", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    if !there {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
