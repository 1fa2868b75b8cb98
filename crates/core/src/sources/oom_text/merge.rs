//! One failure is often told several times: by who logs it and by the exception, by the exception's class
//! and its message, by the process that died and by the one that waited for it.

use crate::{
    failures::{Backend, Failure, Instead, Kind, Program},
    sources::lines::MESSAGE_LINES,
};

/// Lines that may be between two tellings of the same.
const NEAR: usize = 3;
/// Lines that may be between what is logged of an error and the error's own traceback.
const BEFORE_TRACEBACK: usize = 6;
/// Lines that a node of ComfyUI may print between its error and the exception.
const OF_A_NODE: usize = 20;
/// Failures before one that it may be the same as.
const LOOK_BACK: usize = 64;

/// A failure, and the line where it was told last.
struct Located {
    failure: Failure,
    last: usize,
}

/// `failures`, in their order, each once.
pub(super) fn merge(failures: Vec<Failure>) -> Vec<Failure> {
    let mut res: Vec<Located> = Vec::new();
    for failure in failures {
        let last = failure.at;
        if let Some(Located { failure: old, .. }) =
            res.last_mut().filter(|old| announces(&old.failure, &failure))
        {
            let (at, began, times) = (old.at, old.began, old.times);
            let exception = old.exception.take().or_else(|| failure.exception.clone());
            *old = Failure { at, began, times, exception, ..failure };
            continue;
        }
        match res.iter_mut().rev().take(LOOK_BACK).find(|old| is_same(old, &failure)) {
            Some(old) => {
                old.last = last;
                absorb(&mut old.failure, failure);
            }
            None => res.push(Located { failure, last }),
        }
    }
    res.into_iter().map(|it| it.failure).collect()
}

/// Whether `old` says that it failed, and `new` says the same with its numbers.
fn announces(old: &Failure, new: &Failure) -> bool {
    let lines = new.at.saturating_sub(old.at);
    let is_alone = old.text.strip_suffix(':').is_some_and(|it| !it.contains(' '));
    let is_same_kind = (old.kind, old.backend) == (new.kind, new.backend);
    let is_anybodys = old.kind == new.kind && old.backend == Backend::Other;
    // TensorRT logs that memory ran out, then how much it had asked for, and whether it goes on.
    let is_logged = [old.backend, new.backend] == [Backend::TensorRt; 2];
    is_bare(old)
        && new.requested.is_some()
        && old.rank == new.rank
        && (lines <= NEAR && (is_same_kind || is_anybodys || is_logged)
            || lines < MESSAGE_LINES && is_alone
            || (is_same_kind || is_anybodys) && is_of_traceback(old.at, new))
}

fn is_same(Located { failure: old, last }: &Located, new: &Failure) -> bool {
    if old.rank == new.rank && is_followed(old, *last, new) {
        return true;
    }
    let near = new.at.saturating_sub(*last) <= NEAR;
    let hosts = [old.backend, new.backend] == [Backend::Host; 2];
    if old.rank != new.rank {
        return false;
    }
    if near && hosts && new.requested.is_none() {
        return true;
    }
    // A job's table has the numbers that were added to what the job itself said.
    let numbers = |it: &Failure| (it.allocated, it.limit);
    let is_known = old.allocated.is_some() && old.limit.is_some();
    if hosts && is_known && numbers(old) == numbers(new) {
        return true;
    }
    // Of one process's end its parents tell as well.
    if hosts
        && [old.kind, new.kind] == [Kind::MaybeOutOfMemory; 2]
        && old.pid.is_some()
        && old.pid == new.pid
    {
        return true;
    }
    // ComfyUI tells it of the node first, and of the exception behind what the node prints.
    let is_of_a_node = [old.program, new.program] == [Program::Pictures; 2]
        && is_bare(old)
        && is_bare(new)
        && old.backend == new.backend
        && new.at.saturating_sub(*last) <= OF_A_NODE;
    if is_of_a_node {
        return true;
    }
    let is_device = old.device == new.device || near && new.device.is_none();
    let is_equal = old.backend == new.backend
        && old.requested == new.requested
        && old.free == new.free
        && old.allocated == new.allocated
        && is_device
        && (!is_bare(old) || near || is_of_traceback(*last, new));
    let is_runtimes = [Backend::CudaRuntime, Backend::Other].contains(&new.backend)
        || [old.backend, new.backend] == [Backend::Ggml; 2];
    old.kind == new.kind && (is_equal || near && is_bare(new) && is_runtimes)
}

/// Whether `new` fails only because `old` did: every call of CUDA after an assertion of a kernel, and the allocator that asks why the
/// driver refused.
fn is_followed(old: &Failure, last: usize, new: &Failure) -> bool {
    let is_perhaps = new.kind == Kind::MaybeOutOfMemory && new.backend != Backend::Host;
    if old.kind == Kind::NotMemory(Instead::Index) {
        return is_perhaps || new.kind == old.kind;
    }
    let is_sure = old.kind == Kind::OutOfMemory && old.requested.is_none();
    is_sure && is_perhaps && is_of_traceback(last, new)
}

/// Whether what was logged at line `at` stands right before the traceback that ends in `new`.
fn is_of_traceback(at: usize, new: &Failure) -> bool {
    at < new.began && new.began < new.at && new.began - at <= BEFORE_TRACEBACK
}

fn is_bare(it: &Failure) -> bool {
    it.requested.is_none() && it.capacity.is_none()
}

fn absorb(old: &mut Failure, new: Failure) {
    old.times += 1;
    // A shell says only that it was killed; who says why, knows more.
    if !matches!(old.kind, Kind::NotMemory(_)) {
        old.kind = old.kind.min(new.kind);
    }
    old.is_build |= new.is_build;
    if old.backend == Backend::Other {
        old.backend = new.backend;
    }
    old.allocated = old.allocated.or(new.allocated);
    old.pid = old.pid.or(new.pid);
    if old.user_frame.is_none() {
        old.user_frame = new.user_frame;
        old.innermost = new.innermost;
        old.phase = new.phase;
    }
    if old.exception.is_none() {
        old.exception = new.exception;
    }
}
