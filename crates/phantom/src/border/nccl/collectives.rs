//! The collectives: work on a stream, which is done at once, and what it makes of small values.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use plimsoll_values::Contents;
use plimsoll_values::collective::{self as values, Kind, Reduction};

use super::communicators::{self, Communicator, Use};
use super::{INVALID_ARGUMENT, SUCCESS, UNHANDLED_CUDA_ERROR};
use crate::machine;
use crate::machine::report;

/// Calls `change` with what is known of the memory at `to`, if that is a device's.
fn on_device(to: *const c_void, stream: u64, change: impl FnOnce(&mut Contents, u64)) -> i32 {
    report::LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let Some(mut machine) = machine::lock() else { return UNHANDLED_CUDA_ERROR };
    machine.collective(stream);
    let at = to as u64;
    if let Some((device, ..)) = machine.device_of(at) {
        change(&mut machine.devices[device].contents, at);
    }
    SUCCESS
}

/// The communicator and the type of a collective, or NCCL's error for a wrong one, or for a card without
/// room for what this use of the communicator takes.
macro_rules! of {
    ($communicator:expr, $datatype:expr, $how:expr) => {
        match (communicators::find($communicator), Kind::of($datatype)) {
            (Some(communicator), Some(kind)) => match communicators::connect($communicator, $how) {
                Ok(()) => (communicator, kind),
                Err(refused) => return super::error(refused),
            },
            _ => return INVALID_ARGUMENT,
        }
    };
}

fn is_root(communicator: u64, root: c_int) -> bool {
    communicators::find(communicator).is_some_and(|it| it.rank == root)
}

/// The bytes of `count` elements, and where a buffer of one such part for each rank has ours.
fn part(from: *const c_void, count: usize, kind: Kind, it: Communicator) -> (u64, u64) {
    let size = bytes(count, kind);
    (size, (from as u64).saturating_add(it.slot().saturating_mul(size)))
}

fn bytes(count: usize, kind: Kind) -> u64 {
    (count as u64).saturating_mul(kind.width())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Ring);
    on_device(to, stream, |contents, at| {
        values::reduce(
            contents,
            at,
            from as u64,
            count as u64,
            kind,
            Reduction::of(op, it.known_ranks),
        );
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, _) = of!(communicator, datatype, Use::Ring);
    if it.rank != root {
        return on_device(from, stream, |_, _| {});
    }
    ncclAllReduce(from, to, count, datatype, op, communicator, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    op: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Ring);
    let (_, own) = part(from, count, kind, it);
    on_device(to, stream, |contents, at| {
        values::reduce(contents, at, own, count as u64, kind, Reduction::of(op, it.known_ranks));
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Ring);
    let size = bytes(count, kind);
    on_device(to, stream, |contents, at| {
        values::gather(contents, at, from as u64, size, it.known_ranks);
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let how = if is_root(communicator, root) { Use::Receive(None) } else { Use::Send(Some(root)) };
    let (it, kind) = of!(communicator, datatype, how);
    if it.rank != root {
        return on_device(from, stream, |_, _| {});
    }
    on_device(to, stream, |contents, at| {
        values::gather(contents, at, from as u64, bytes(count, kind), it.known_ranks);
    })
}

/// Collectives that are given between `ncclGroupStart` and `ncclGroupEnd`, which may nest, are one.
#[derive(Default)]
struct Group {
    depth: u32,
    /// Where each broadcast has what we send, if we are its root, and where it arrives; of so many bytes.
    broadcasts: Vec<(Option<u64>, u64, u64)>,
    /// What we send to ourselves in a communicator, and of how many bytes it is.
    to_ourselves: BTreeMap<u64, (u64, u64)>,
    /// The communicator of each message to us, where it arrives, and of how many bytes it is.
    received: Vec<(u64, u64, u64)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> i32 {
    GROUP.with_borrow_mut(|it| it.depth += 1);
    SUCCESS
}

/// A broadcast from every rank in turn is a gathering, as `PyTorch` 2.15 writes it: the others send what we do. Messages to every rank
/// and from every rank are an exchange: what the others send to us is what we send to ourselves.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> i32 {
    let group = GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth == 0 { std::mem::take(group) } else { Group::default() }
    });
    let own = group.broadcasts.iter().find_map(|&(from, _, size)| Some((from?, size)));
    let of_others = group.broadcasts.iter().filter(|it| it.0.is_none());
    let gathered = of_others.filter_map(|&(_, at, size)| Some((own?, at, size)));
    let exchanged = group
        .received
        .iter()
        .filter_map(|&(of, at, size)| Some((*group.to_ourselves.get(&of)?, at, size)));
    let arrive: Vec<_> = gathered.chain(exchanged).filter(|it| it.0.1 == it.2).collect();
    if arrive.is_empty() {
        return SUCCESS;
    }
    let Some(mut machine) = machine::lock() else { return UNHANDLED_CUDA_ERROR };
    for ((from, size), at, _) in arrive {
        if let Some((device, ..)) = machine.device_of(at) {
            machine.devices[device].contents.copy(at, from, size);
        }
    }
    SUCCESS
}

/// What `root` has, which is what we have: the target keeps, or gets, our values.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Ring);
    let size = bytes(count, kind);
    GROUP.with_borrow_mut(|group| {
        if group.depth != 0 {
            let ours = (it.rank == root).then_some(from as u64);
            group.broadcasts.push((ours, to as u64, size));
        }
    });
    on_device(to, stream, |contents, at| {
        if !from.is_null() && from as u64 != at {
            contents.copy(at, from as u64, size);
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    ncclBroadcast(buffer, buffer, count, datatype, root, communicator, stream)
}

/// Rank `r` sends us the slot that is ours, and what it has there is what we have there.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAlltoAll(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Exchange);
    let (size, own) = part(from, count, kind, it);
    on_device(to, stream, |contents, at| {
        values::gather(contents, at, own, size, it.known_ranks);
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let how = if is_root(communicator, root) { Use::Send(None) } else { Use::Receive(Some(root)) };
    let (it, kind) = of!(communicator, datatype, how);
    let (size, own) = part(from, count, kind, it);
    on_device(to, stream, |contents, at| {
        if it.rank == root {
            contents.copy(at, own, size);
        } else {
            contents.forget(at, size);
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (it, kind) = of!(communicator, datatype, Use::Send(Some(peer)));
    GROUP.with_borrow_mut(|group| {
        if group.depth != 0 && it.rank == peer {
            group.to_ourselves.insert(communicator, (from as u64, bytes(count, kind)));
        }
    });
    on_device(from, stream, |_, _| {})
}

/// What a particular other rank would have sent is not known, unless it is part of an exchange.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> i32 {
    let (_, kind) = of!(communicator, datatype, Use::Receive(Some(peer)));
    let size = bytes(count, kind);
    GROUP.with_borrow_mut(|group| {
        if group.depth != 0 {
            group.received.push((communicator, to as u64, size));
        }
    });
    on_device(to, stream, |contents, at| contents.forget(at, size))
}
