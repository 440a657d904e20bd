//! The end of the program. When `main` returns, or calls `exit`, no task runs any more, and no thread is waited for; so the
//! main thread waits for the releases itself, where the system runs the destructors of its thread-local values (as on Linux with
//! glibc).

use super::{Office, Worker};
use std::cell::RefCell;
use std::sync::{Arc, Weak};

thread_local! {
    static AT_EXIT: AtExit = AtExit::of_this_thread();
}

struct AtExit {
    /// Other threads come and go while the program goes on.
    is_main: bool,
    offices: RefCell<Vec<Weak<Office>>>,
}

/// If this is the main thread, its end waits for the releases of this client.
pub(super) fn watch(office: &Arc<Office>) {
    // There is no later than the end of the thread.
    let _ = AT_EXIT.try_with(|exit| exit.watch(office));
}

impl AtExit {
    fn of_this_thread() -> Self {
        Self { is_main: std::thread::current().name() == Some("main"), offices: RefCell::default() }
    }

    fn watch(&self, office: &Arc<Office>) {
        if !self.is_main {
            return;
        }
        let mut offices = self.offices.borrow_mut();
        if offices.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(office))) {
            return;
        }
        if offices.len().is_power_of_two() {
            offices.retain(|known| known.strong_count() > 0);
        }
        offices.push(Arc::downgrade(office));
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        let offices: Vec<_> = self.offices.take().iter().filter_map(Weak::upgrade).collect();
        // All of them send before the first is waited for.
        for office in &offices {
            office.at_exit();
        }
        for office in &offices {
            office.settle();
        }
    }
}

impl Office {
    /// Nothing that was left to a runtime is certain to be done.
    fn at_exit(self: &Arc<Self>) {
        if !self.process.is_current() {
            return;
        }
        let book = self.book();
        if book.queue.unconfirmed() > 0 && book.worker == Worker::Task {
            self.take_over(book);
        }
    }
}
