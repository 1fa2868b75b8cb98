//! What messages of some kinds say beyond numbers that stand beside their words.

use crate::{
    failures::{Backend, Failure, Kind},
    sources::{
        numbers::{after, before, before_at, device_after, int_after, size_at},
        oom_text::shapes,
    },
    units::Bytes,
};

/// The caching allocator's templates of all versions and devices.
pub(super) fn torch(it: &mut Failure, lower: &str, _: &str) {
    it.backend = backend(lower);
    it.requested = after(lower, "tried to allocate");
    // 2^64 bytes, and a little less: what a size below zero looks like.
    it.is_no_size = ["17179869183.", "17179869184."]
        .iter()
        .any(|it| lower.contains(&format!("tried to allocate {it}")));
    it.device = ["(gpu ", " gpu ", "(npu ", " npu ", "(mlu ", "(musa ", "gpu "]
        .iter()
        .find_map(|word| device_after(lower, word));
    it.capacity = before(lower, " total cap")
        .or_else(|| after(lower, "total capacity of"))
        .or_else(|| after(lower, "total capacty of"));
    it.free = before(lower, " is free")
        .or_else(|| before(lower, " free;"))
        .or_else(|| before(lower, " free)"));
    it.allocated =
        before(lower, " already allocated").or_else(|| before(lower, " is allocated by pytorch"));
    it.reserved = before(lower, " reserved in total by");
    it.slack = before(lower, " is reserved by pytorch but unallocated")
        .or_else(|| before(lower, " cached)"));
    it.limit = before(lower, " allowed;");
    it.private_pools = before(lower, " allocated in private pools");
    number(it, "current active", before(lower, " current active"));
    number(it, "expandable-segment reserve", after(lower, "expandable-segment reserve of"));
    if let Some(at) = lower.find("this process has") {
        it.process = after(&lower[at..], "this process has");
    }
    let mut rest = lower;
    while let Some(at) = rest.find("process ") {
        rest = &rest[at + "process ".len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(pid) = digits.parse::<u32>()
            && let Some(tail) = rest[digits.len()..].strip_prefix(" has ")
            && let Some((bytes, _)) = size_at(tail)
            && it.processes.len() < 256
        {
            it.processes.push((pid, bytes));
        }
    }
}

fn number(it: &mut Failure, label: &str, bytes: Option<Bytes>) {
    if let Some(bytes) = bytes {
        it.numbers.push((label.to_owned(), bytes));
    }
}

/// XLA's account of a program: `preallocated temp allocation: 4.44GiB`.
fn labelled(it: &mut Failure, lower: &str) {
    for label in [
        "parameter allocation",
        "constant allocation",
        "maybe_live_out allocation",
        "preallocated temp allocation",
        "total allocation",
        "total fragmentation",
        "total hbm usage >=",
        "reserved",
        "program",
        "arguments",
    ] {
        let is_table = label.len() > 9 || lower.contains("total hbm usage");
        let found =
            lower.find(label).and_then(|at| after(&lower[at..], label)).filter(|_| is_table);
        number(it, label.trim_end_matches(" >="), found);
    }
}

/// Who out of memory is: the word before. Some forks of PyTorch print the device's name only.
fn backend(lower: &str) -> Backend {
    [
        ("hip out of memory", Backend::Hip),
        ("xpu out of memory", Backend::Xpu),
        ("can not allocate memory block", Backend::Xpu),
        ("npu out of memory", Backend::Npu),
        ("(npu ", Backend::Npu),
        ("mlu out of memory", Backend::Mlu),
        ("musa out of memory", Backend::Musa),
    ]
    .iter()
    .find_map(|(word, backend)| lower.contains(word).then_some(*backend))
    .unwrap_or(Backend::Cuda)
}

pub(super) fn exabyte(it: &mut Failure, lower: &str, _: &str) {
    it.backend = backend(lower);
    it.is_no_size = true;
}

pub(super) fn mps(it: &mut Failure, _: &str, tail: &str) {
    let others = after(tail, "other allocations:");
    number(it, "other allocations", others);
    it.process = it.allocated.zip(others).map(|(a, b)| a + b);
}

/// Without a limit it prints a number that no memory has.
pub(super) fn malloc_async(it: &mut Failure, _: &str, tail: &str) {
    it.limit = after(tail, "memory fraction)").filter(|it| it.0 < 1 << 50);
}

/// While an engine is built, what does not fit is tried and left out.
pub(super) fn tensorrt(it: &mut Failure, lower: &str, _: &str) {
    if lower.contains("skipping tactic") {
        it.kind = Kind::Warning;
    }
}

/// `Device 0 OOM 17049845760 / 16777216000`: what the pod would have, and may have.
pub(super) fn hami(it: &mut Failure, lower: &str, _: &str) {
    let Some((head, tail)) = lower.split_once(" oom ") else { return };
    it.device = head.rsplit_once("device ").and_then(|(_, it)| it.trim().parse().ok());
    let mut sizes = tail.split('/').map(|it| {
        let digits: String = it.trim().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().map(Bytes)
    });
    it.allocated = sizes.next().flatten();
    it.reserved = it.allocated;
    it.limit = sizes.next().flatten();
}

/// Nodes whose names end in `_nchwc` are those of the CPU's provider.
pub(super) fn onnxruntime(it: &mut Failure, lower: &str, _: &str) {
    if lower.contains("_nchwc'") {
        it.kind = Kind::HostOutOfMemory;
    }
}

pub(super) fn vllm_free(it: &mut Failure, lower: &str, _: &str) {
    // What a launcher puts before the message has parentheses, too.
    let levels = lower.find("free memory on device").map_or("", |at| &lower[at..]);
    // Older versions name no device: `on device (3.22/4.0 GiB)`.
    let named = levels.split('(').next().unwrap_or_default();
    it.device =
        ["cuda:", "xpu:", "hip:", "device "].iter().find_map(|word| device_after(named, word));
    if let Some((free, total)) = levels.split_once('(').and_then(|(_, rest)| rest.split_once('/')) {
        it.capacity = size_at(total.trim()).map(|(it, _)| it);
        it.free = size_at(&format!("{} gib", free.trim())).map(|(it, _)| it);
    }
    it.requested = lower.rfind(" gib)").and_then(|at| before_at(lower, at + 4));
}

/// An old version forgot to put the number in: `%dGB. Buy new RAM!27`.
pub(super) fn cpu_allocator(it: &mut Failure, _: &str, tail: &str) {
    let old = int_after(tail, "buy new ram!").and_then(|it| it.checked_mul(1 << 30));
    it.requested = old.map(Bytes).or(it.requested);
}

/// `was running was 59.49GB / 62.58GB (0.95)`
pub(super) fn ray(it: &mut Failure, lower: &str, _: &str) {
    it.allocated = after(lower, "was running was");
    let used = lower.split_once("was running was").map_or("", |(_, it)| it);
    it.capacity = it.allocated.and_then(|_| size_at(used.split_once("/ ")?.1)).map(|(it, _)| it);
    number(it, "the task that was killed", after(lower, "memory used="));
    // Its list of the largest: `48112 229.84 ray::TaskRunner.run`, in GB.
    let first = lower.split_once("mem(gb) command ").map_or("", |(_, it)| it);
    let mut words = first.split_whitespace().skip(1);
    if let (Some(size), Some(command)) = (words.next(), words.next()) {
        let command = command.rsplit("::").next().unwrap_or(command);
        number(it, &format!("the largest: {command}"), after(&format!(" {size} gb"), ""));
    }
}

/// `Effective GPU memory usage: 99.55% (11.688 GiB/11.741 GiB)`, and the pool's line below it.
pub(super) fn julia(it: &mut Failure, _: &str, tail: &str) {
    let Some((_, usage)) = tail.split_once("memory usage:") else { return };
    let sizes = |text: &str| Some(size_at(text.split_once('(')?.1)?.0);
    let of = usage.split_once('/').and_then(|(_, it)| size_at(it)).map(|(it, _)| it);
    it.capacity = of;
    it.free = of.zip(sizes(usage)).map(|(of, used)| of.saturating_sub(used));
    it.allocated = after(usage, "pool usage:");
}

pub(super) fn killed(it: &mut Failure, lower: &str, _: &str) {
    it.pid = int_after(lower, "killed process")
        .or_else(|| int_after(lower, "kill process"))
        .and_then(|it| u32::try_from(it).ok());
}

/// `failed (exitcode: -9) local_rank: 0 (pid: 14750)`
pub(super) fn ended(it: &mut Failure, lower: &str, tail: &str) {
    let pid = |text: &str| ["(pid:", "(pid "].iter().find_map(|word| int_after(text, word));
    it.pid = pid(tail).or_else(|| pid(lower)).and_then(|it| u32::try_from(it).ok());
}

pub(super) fn xla(it: &mut Failure, lower: &str, _: &str) {
    labelled(it, lower);
}

/// `6.27GiB (6727663616B)`: the exact one.
pub(super) fn xla_request(it: &mut Failure, _: &str, tail: &str) {
    it.requested = after(tail, "(").or_else(|| after(tail, "request for"));
}

/// `Used 21.43G of 15.75G hbm. Exceeded hbm capacity by 5.68G.`
pub(super) fn xla_space(it: &mut Failure, lower: &str, tail: &str) {
    it.requested = after(tail, "used");
    let used = tail.find("used").map_or("", |at| &tail[at..]);
    it.capacity = used.find(" of ").and_then(|at| size_at(&used[at + 4..])).map(|(it, _)| it);
    number(it, "exceeded by", after(tail, "capacity by"));
    labelled(it, lower);
}

pub(super) fn tensorflow_shape(it: &mut Failure, lower: &str, _: &str) {
    it.requested = shapes::size(lower);
    if lower.contains("device:cpu:") {
        it.kind = Kind::HostOutOfMemory;
    }
}

pub(super) fn paddle(it: &mut Failure, _: &str, tail: &str) {
    it.allocated = before(tail, "memory has been allocated");
}

/// What its allocator counted, in the lines before: `Limit: 10619240448`, `InUse: 2437000000`.
pub(super) fn tensorflow_stats<'a>(it: &mut Failure, lines_before: impl Iterator<Item = &'a str>) {
    const MOST_LINES: usize = 40;
    if it.backend != Backend::TensorFlow {
        return;
    }
    for line in lines_before.take(MOST_LINES) {
        let lower = line.trim().to_ascii_lowercase();
        if lower.starts_with("limit:") {
            it.capacity = it.capacity.or_else(|| after(&lower, "limit:"));
        } else if lower.starts_with("inuse:") {
            it.allocated = it.allocated.or_else(|| after(&lower, "inuse:"));
        }
    }
    it.free = it.free.or_else(|| Some(it.capacity?.saturating_sub(it.allocated?)));
}

/// `failed, 12 > 11`
pub(super) fn paddle_enforce(it: &mut Failure, _: &str, tail: &str) {
    it.requested = after(tail, "failed,");
    it.free = tail.find(" > ").and_then(|at| size_at(&tail[at + 3..])).map(|(it, _)| it);
}

/// The second line has it to the byte, the first rounded.
pub(super) fn ggml(it: &mut Failure, lower: &str, _: &str) {
    let rounded = after(lower, "allocating ");
    let is_other =
        |size: &Bytes| it.requested.is_none_or(|exact| exact.0 / 1_000 < exact.0.abs_diff(size.0));
    let other = rounded.filter(is_other);
    number(it, "allocating", other);
}
