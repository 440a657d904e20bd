//! The end of the program. When `main` returns, or calls `exit`, tasks no longer run, and threads are not waited for; so the
//! main thread waits for the releases itself, if the system runs the destructors of its thread-local values (as Linux with
//! glibc).

use super::ReaperTask;
use crate::driver::Driver;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    static AT_EXIT: AtExit = AtExit::of_this_thread();
}

struct AtExit {
    /// Other threads may end while the program continues.
    is_main: bool,
    clients: RefCell<Vec<Weak<Driver>>>,
}

impl AtExit {
    fn of_this_thread() -> Self {
        Self { is_main: std::thread::current().name() == Some("main"), clients: RefCell::default() }
    }

    fn watch(&self, client: &Arc<Driver>) {
        if !self.is_main {
            return;
        }
        let mut clients = self.clients.borrow_mut();
        if clients.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(client))) {
            return;
        }
        if clients.len().is_power_of_two() {
            clients.retain(|known| known.strong_count() > 0);
        }
        clients.push(Arc::downgrade(client));
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let clients: Vec<_> = self.clients.take().iter().filter_map(Weak::upgrade).collect();
        // All clients send before the first is waited for.
        clients.iter().for_each(at_exit);
        for client in &clients {
            client.settle();
        }
    }
}

/// If this is the main thread, its end waits for the releases of this client.
pub(crate) fn watch_exit(client: &Arc<Driver>) {
    // This fails only while the thread ends, when it is too late to register.
    let _ = AT_EXIT.try_with(|exit| exit.watch(client));
}

/// Work that was left to a runtime may not be completed.
fn at_exit(client: &Arc<Driver>) {
    if !client.identity.process.is_current() {
        return;
    }
    client.stop();
    let next = client.reaper.releases().take_over();
    // The task may wait for a notification, but does not run any more to pass it on.
    client.reaper.wake.notify_one();
    if let Some(worker) = next {
        ReaperTask::start_thread(client, worker);
    }
}
