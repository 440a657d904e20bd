#![allow(dead_code, reason = "no test uses all numbers")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts. A reallocation is an allocation of the new size.
pub(crate) struct Counting;

impl Counting {
    /// The allocations so far, and their bytes.
    pub(crate) fn so_far() -> (usize, usize) {
        (ALLOCATIONS.load(Ordering::Relaxed), ALLOCATED.load(Ordering::Relaxed))
    }

    /// The bytes that are in use.
    pub(crate) fn in_use() -> isize {
        ALLOCATED.load(Ordering::Relaxed).wrapping_sub(FREED.load(Ordering::Relaxed)).cast_signed()
    }
}

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    ALLOCATED.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: everything is left to the system's allocator; only three numbers are counted in addition.
#[expect(unsafe_code, reason = "a counting allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        FREED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}
