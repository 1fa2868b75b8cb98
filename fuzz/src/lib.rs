//! The bound that every target shares: what reading allocates is in proportion to what it reads.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// What every input may take, however small: the tables of words, buffers of one chunk.
const FREE: usize = 4 << 20;
/// What each byte of an input may take.
const EACH: usize = 256;

/// Counts what is live, and the most that ever was.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps what `alloc` demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps what `dealloc` demands.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs `read` on `bytes` and panics if it ever held more than the bound.
pub fn bounded(bytes: &[u8], read: impl FnOnce(&[u8])) {
    let before = LIVE.load(Relaxed);
    MOST.store(before, Relaxed);
    read(bytes);
    let most = MOST.load(Relaxed).saturating_sub(before);
    let bound = FREE + EACH * bytes.len();
    assert!(most <= bound, "{} bytes of input took {most} bytes of memory, bound {bound}", bytes.len());
}
