//! The end of the program. When `main` returns, or calls `exit`, tasks no longer run, and threads are not waited for; so the
//! main thread waits for the releases itself, if the system runs the destructors of its thread-local values (as Linux with
//! glibc).

use super::{Reaper, Worker};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    static AT_EXIT: AtExit = AtExit::of_this_thread();
}

struct AtExit {
    /// Other threads may end while the program continues.
    is_main: bool,
    clients: RefCell<Vec<Weak<Reaper>>>,
}

impl AtExit {
    fn of_this_thread() -> Self {
        Self { is_main: std::thread::current().name() == Some("main"), clients: RefCell::default() }
    }

    fn watch(&self, reaper: &Arc<Reaper>) {
        if !self.is_main {
            return;
        }
        let mut clients = self.clients.borrow_mut();
        if clients.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(reaper))) {
            return;
        }
        if clients.len().is_power_of_two() {
            clients.retain(|known| known.strong_count() > 0);
        }
        clients.push(Arc::downgrade(reaper));
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let clients: Vec<_> = self.clients.take().iter().filter_map(Weak::upgrade).collect();
        // All clients send before the first is waited for.
        clients.iter().for_each(Reaper::at_exit);
        for reaper in &clients {
            reaper.settle();
        }
    }
}

impl Reaper {
    /// If this is the main thread, its end waits for the releases of this client.
    pub(crate) fn watch_exit(self: &Arc<Self>) {
        // This fails only while the thread ends, when it is too late to register.
        let _ = AT_EXIT.try_with(|exit| exit.watch(self));
    }

    /// Work that was left to a runtime may not be completed.
    fn at_exit(self: &Arc<Self>) {
        if !self.process.is_current() {
            return;
        }
        if let Some(driver) = self.driver.upgrade() {
            driver.stop();
        }
        let state = self.state();
        if state.queue.unconfirmed() > 0 && state.worker == Worker::Task {
            self.take_over(state);
        }
    }
}
