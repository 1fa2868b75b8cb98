//! What a program ties to a graph (`cudaUserObjectCreate`): a function that is called once nobody holds the object any more. `PyTorch` 2.15 keeps
//! the tensors of captured collectives so. A graph that is made ready to run (`cudaGraphExec_t`) holds what its graph held.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use super::{INVALID_VALUE, SUCCESS, answer, fail, machine};

/// `cudaHostFn_t`
type Destroy = extern "C" fn(*mut c_void);

/// `cudaGraphUserObjectMove`: the caller's references become the graph's.
const MOVE: c_uint = 1;

static OBJECTS: Mutex<Objects> =
    Mutex::new(Objects { alive: BTreeMap::new(), held: BTreeMap::new() });

#[derive(Debug)]
struct Object {
    destroy: Destroy,
    /// What that is given, an address.
    with: usize,
    references: u64,
}

#[derive(Debug)]
struct Objects {
    /// By handle.
    alive: BTreeMap<u64, Object>,
    /// What graphs hold, by theirs, and how often.
    held: BTreeMap<u64, BTreeMap<u64, u64>>,
}

impl Objects {
    fn retain(&mut self, object: u64, count: u64) -> bool {
        let Some(it) = self.alive.get_mut(&object) else { return false };
        it.references += count;
        true
    }

    /// The object if nobody holds it any more: it is to be destroyed, with no lock held.
    fn release(&mut self, object: u64, count: u64) -> Option<Object> {
        let it = self.alive.get_mut(&object)?;
        it.references = it.references.saturating_sub(count);
        (it.references == 0).then(|| self.alive.remove(&object)).flatten()
    }
}

fn with<R>(ask: impl FnOnce(&mut Objects) -> R) -> R {
    ask(&mut OBJECTS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn destroy(object: Option<Object>) {
    if let Some(Object { destroy, with, .. }) = object {
        destroy(with as *mut c_void);
    }
}

/// What `graph` holds, `exec` holds, too.
pub(super) fn instantiated(exec: u64, graph: u64) {
    with(|objects| {
        let held = objects.held.get(&graph).cloned().unwrap_or_default();
        for (&object, &count) in &held {
            objects.retain(object, count);
        }
        if !held.is_empty() {
            objects.held.insert(exec, held);
        }
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaUserObjectCreate(
    object: *mut u64,
    pointer: *mut c_void,
    destroy: Option<Destroy>,
    references: c_uint,
    _flags: c_uint,
) -> i32 {
    let Some(destroy) = destroy else { return fail(INVALID_VALUE) };
    let handle = machine!().handle();
    let it = Object { destroy, with: pointer as usize, references: references.into() };
    with(|all| all.alive.insert(handle, it));
    // SAFETY: the caller's pointer, checked for null.
    unsafe { answer(object, handle) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaUserObjectRetain(object: u64, count: c_uint) -> i32 {
    let is_alive = with(|it| it.retain(object, count.into()));
    if is_alive { SUCCESS } else { fail(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaUserObjectRelease(object: u64, count: c_uint) -> i32 {
    destroy(with(|it| it.release(object, count.into())));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphRetainUserObject(
    graph: u64,
    object: u64,
    count: c_uint,
    flags: c_uint,
) -> i32 {
    let count = u64::from(count);
    let is_alive = with(|objects| {
        let is_alive = objects.retain(object, if flags & MOVE == 0 { count } else { 0 });
        if is_alive {
            *objects.held.entry(graph).or_default().entry(object).or_default() += count;
        }
        is_alive
    });
    if is_alive { SUCCESS } else { fail(INVALID_VALUE) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphReleaseUserObject(graph: u64, object: u64, count: c_uint) -> i32 {
    let count = u64::from(count);
    let last = with(|objects| {
        let held = objects.held.get_mut(&graph).and_then(|it| it.get_mut(&object));
        let released = held.map_or(0, |held| {
            let released = count.min(*held);
            *held -= released;
            released
        });
        objects.release(object, released)
    });
    destroy(last);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphDestroy(graph: u64) -> i32 {
    let last: Vec<_> = with(|objects| {
        let held = objects.held.remove(&graph).unwrap_or_default();
        held.into_iter().map(|(object, count)| objects.release(object, count)).collect()
    });
    last.into_iter().for_each(destroy);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGraphExecDestroy(exec: u64) -> i32 {
    cudaGraphDestroy(exec)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static ENDED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn end(with: *mut c_void) {
        assert_eq!(with as usize, 7);
        ENDED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn an_object_ends_with_the_last_graph_that_holds_it() {
        let (object, graph, exec) = (1 << 60, 5, 6);
        let it = Object { destroy: end, with: 7, references: 1 };
        with(|all| all.alive.insert(object, it));
        assert_eq!(cudaGraphRetainUserObject(graph, object, 1, MOVE), SUCCESS);
        instantiated(exec, graph);
        cudaGraphDestroy(graph);
        assert_eq!(ENDED.load(Ordering::Relaxed), 0, "it can still be launched");
        cudaGraphExecDestroy(exec);
        assert_eq!(ENDED.load(Ordering::Relaxed), 1);
        cudaUserObjectRelease(object, 1);
        assert_eq!(ENDED.load(Ordering::Relaxed), 1, "nothing is there any more");
    }
}
