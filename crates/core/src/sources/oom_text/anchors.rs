//! The words by which each kind of message is known, and which numbers it has.

use crate::{
    failures::{Backend, Failure, Kind},
    sources::oom_text::{
        numbers::{after, before, before_at, device_after, int_after, size_at},
        shapes,
    },
    units::Bytes,
};

/// One kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// The caching allocator of PyTorch, on whatever device.
    Torch,
    Mps,
    MallocAsync,
    Exabyte,
    Preempted,
    TorchWarning,
    XlaAllocate,
    XlaRequest,
    XlaSpace,
    TensorFlowShape,
    TensorFlowWarning,
    TensorFlowHost,
    TensorFlowDriver,
    Cublas,
    Cudnn,
    CudnnAlgorithm,
    Nccl,
    Runtime,
    Ggml,
    Cupy,
    OnnxRuntime,
    Paddle,
    PaddleEnforce,
    AllocatorAssert,
    HostAllocator,
    HostKilled,
    HostNumpy,
    Triton,
    VllmFree,
    VllmCache,
    Bitsandbytes,
    Bare,
}

use Anchor::{
    AllocatorAssert, Bare, Bitsandbytes, Cublas, Cudnn, CudnnAlgorithm, Cupy, Exabyte, Ggml,
    HostAllocator, HostKilled, HostNumpy, MallocAsync, Mps, Nccl, OnnxRuntime, Paddle,
    PaddleEnforce, Preempted, Runtime, TensorFlowDriver, TensorFlowHost, TensorFlowShape,
    TensorFlowWarning, Torch, TorchWarning, Triton, VllmCache, VllmFree, XlaAllocate, XlaRequest,
    XlaSpace,
};

/// What each is known by, in lower case; the first in this list wins where several are in one line.
const ANCHORS: &[(Anchor, &str)] = &[
    (Triton, "out of resource: shared memory"),
    (Triton, "outofresources"),
    (Mps, "mps backend out of memory"),
    (MallocAsync, "would exceed allowed memory"),
    (Exabyte, "tried to allocate more than 1eb"),
    (Preempted, "allocation was preemptively rejected"),
    (TorchWarning, "memory allocation failed with oom on device"),
    (TorchWarning, "memory mapping failed with oom on device"),
    (TensorFlowWarning, "the caller indicates that this is not a failure"),
    (Torch, "out of memory. tried to allocate"),
    (HostAllocator, "defaultcpuallocator"),
    (XlaAllocate, "out of memory while trying to allocate"),
    (XlaAllocate, "out of memory allocating"),
    (XlaRequest, "failed to allocate request for"),
    (XlaSpace, "ran out of memory in memory space"),
    (TensorFlowShape, "oom when allocating tensor"),
    (TensorFlowHost, "could not allocate pinned host memory"),
    (TensorFlowHost, "bytes on host: cuda_error_out_of_memory"),
    (TensorFlowDriver, "failed to allocate memory from device"),
    (TensorFlowDriver, "ran out of memory trying to allocate"),
    (Cublas, "cublas_status_alloc_failed"),
    (Cublas, "cublas_status_not_initialized"),
    (Cudnn, "cudnn_status_alloc_failed"),
    (CudnnAlgorithm, "unable to find a valid cudnn algorithm"),
    (CudnnAlgorithm, "no valid convolution algorithms available in cudnn"),
    (CudnnAlgorithm, "could not create cudnn handle"),
    (Nccl, "nccl warn cuda failure 'out of memory'"),
    (Nccl, "nccl warn cuda failure 2 'out of memory'"),
    (Ggml, "cudamalloc failed: out of memory"),
    (Ggml, "failed to allocate cuda"),
    (Cupy, "out of memory to allocate"),
    (OnnxRuntime, "failed to allocate memory for requested buffer of size"),
    (Paddle, "out of memory error on gpu"),
    (PaddleEnforce, "enforce allocating <= available failed"),
    (AllocatorAssert, "cudacachingallocator.cpp"),
    (HostNumpy, "unable to allocate"),
    (HostKilled, "out of memory: killed process"),
    (HostKilled, "oom-kill"),
    (HostKilled, "oom_kill"),
    (HostKilled, "cannot allocate memory"),
    (Bitsandbytes, "error out of memory at line"),
    (VllmFree, "less than desired gpu memory utilization"),
    (VllmCache, "no available memory for the cache blocks"),
    (Runtime, "cuda error: out of memory"),
    (Runtime, "hip error: out of memory"),
    (Runtime, "cuda runtime error (2) : out of memory"),
    (Runtime, "cuda runtime error (2): out of memory"),
    (Runtime, "error=2 : out of memory"),
    (Runtime, "cuda_error_out_of_memory"),
    (Runtime, "cudaerrormemoryallocation"),
    (Runtime, "cuda failure 'out of memory'"),
    (Runtime, "cuda failure 2: out of memory"),
    // What is left of messages whose beginning is lost.
    (Torch, "total capacity;"),
    (Torch, "has a total capac"),
    (Torch, "already allocated;"),
    (Torch, "reserved in total by pytorch"),
    (Torch, "is reserved by pytorch but unallocated"),
    (Bare, "cuda out of memory"),
    (Bare, "hip out of memory"),
    (Bare, "xpu out of memory"),
    (Bare, "npu out of memory"),
    (Bare, "outofmemoryerror"),
];

/// The anchor of a message that begins in the first `first` bytes of `lower`.
pub(super) fn find(lower: &str, first: usize) -> Option<(Anchor, usize)> {
    let found = ANCHORS.iter().find_map(|(anchor, words)| {
        let at = lower.find(words)?;
        (at < first && holds(*anchor, lower, at)).then_some((*anchor, at))
    });
    found.filter(|(anchor, at)| !is_talk(*anchor, lower, *at))
}

/// Where another message begins after `first`.
pub(super) fn next_after(lower: &str, first: usize) -> Option<usize> {
    let begins = [
        "out of memory. tried to allocate",
        "thcudacheck fail",
        "runtimeerror: ",
        "outofmemoryerror: ",
    ];
    begins.iter().filter_map(|it| lower.get(first..)?.find(it).map(|at| first + at)).min()
}

/// Whether the words mean what they seem to mean.
fn holds(anchor: Anchor, lower: &str, at: usize) -> bool {
    match anchor {
        AllocatorAssert => lower.contains("internal assert failed") && lower.contains("handles_"),
        HostNumpy => lower.contains("memoryerror") || lower.contains("_arraymemoryerror"),
        HostKilled if lower[at..].starts_with("cannot") => {
            lower.contains("oserror") || lower.contains("errno 12") || lower.contains("error")
        }
        Cublas if lower[at..].starts_with("cublas_status_not") => lower.contains("cublascreate"),
        TensorFlowDriver => {
            lower.contains("tensorflow")
                || lower.contains("bfc")
                || lower.contains("stream_executor")
        }
        Bare => is_exception(lower, at),
        _ => true,
    }
}

/// `torch.OutOfMemoryError:` at the beginning, or `CUDA out of memory` that is not in a sentence.
fn is_exception(lower: &str, at: usize) -> bool {
    let head = lower[..at].trim_end();
    let is_code = ["except", "import", "raise", "catch", "isinstance", "`", "def ", "class "];
    if is_code.iter().any(|it| head.contains(it)) {
        return false;
    }
    if lower[at..].starts_with("outofmemoryerror") {
        // A class name at the end of a word chain: `torch.cuda.OutOfMemoryError: ...`
        let rest = &lower[at + "outofmemoryerror".len()..];
        return rest.starts_with(':') || rest.is_empty();
    }
    head.is_empty() || head.ends_with([':', ']', ')', '!', '-', '|', '"', '\'', '('])
}

/// Advice and documentation name the same words.
fn is_talk(anchor: Anchor, lower: &str, at: usize) -> bool {
    if matches!(anchor, Torch | Mps | XlaAllocate | XlaRequest | Paddle | HostAllocator) {
        return false;
    }
    let start =
        (0..=at.saturating_sub(60)).rev().find(|it| lower.is_char_boundary(*it)).unwrap_or(0);
    let head = &lower[start..at];
    [
        "if you ",
        "to avoid",
        "to prevent",
        "may cause",
        "might cause",
        "in case of",
        "when you see",
        "how to fix",
    ]
    .iter()
    .any(|it| head.contains(it))
}

impl Anchor {
    /// Whether its message goes on over several lines.
    pub(super) fn is_long(self) -> bool {
        matches!(
            self,
            Torch | Mps | MallocAsync | XlaAllocate | XlaSpace | TensorFlowShape | HostAllocator
        )
    }
}

/// The numbers of the message that begins at `start`.
pub(super) fn parse(anchor: Anchor, text: &str, lower: &str, start: usize) -> Failure {
    let mut it = Failure { exception: exception(text), ..Failure::default() };
    let tail = &lower[start..];
    match anchor {
        Torch | Bare => torch(&mut it, lower),
        Mps => {
            it.backend = Backend::Mps;
            it.requested = after(tail, "tried to allocate");
            it.allocated = after(tail, "mps allocated:");
            it.limit = after(tail, "max allowed:");
            number(&mut it, "other allocations", after(tail, "other allocations:"));
            it.process = it.allocated.zip(after(tail, "other allocations:")).map(|(a, b)| a + b);
        }
        MallocAsync => {
            it.backend = Backend::CudaMallocAsync;
            it.device = device_after(lower, "on device");
            it.allocated = after(tail, "currently allocated");
            it.requested = after(tail, "requested");
            it.capacity = after(tail, "device limit");
            it.free = after(tail, "free (according to cuda)");
            it.limit = after(tail, "memory fraction)").filter(|it| it.0 < 1 << 50);
        }
        Exabyte => {
            it.requested = Some(Bytes(1 << 60));
            it.capacity = Some(Bytes::gib(1 << 20));
        }
        Preempted => it.requested = after(tail, "requested size"),
        TorchWarning => {
            it.kind = Kind::Warning;
            it.device = device_after(tail, "on device");
            it.requested = after(tail, "trying to allocate");
            it.free = after(tail, "free:");
            it.capacity = after(tail, "total:");
        }
        XlaAllocate => {
            it.backend =
                if lower.contains("allocated so far") { Backend::Cupy } else { Backend::Xla };
            it.requested =
                after(tail, "trying to allocate").or_else(|| after(tail, "memory allocating"));
            it.allocated = after(tail, "allocated so far");
            labelled(&mut it, lower);
        }
        XlaRequest => {
            it.backend = Backend::Xla;
            it.device = device_after(tail, "device ordinal");
            // `6.27GiB (6727663616B)`: the exact one.
            it.requested = after(tail, "(").or_else(|| after(tail, "request for"));
        }
        XlaSpace => {
            it.backend = Backend::Xla;
            it.requested = after(tail, "used");
            let used = tail.find("used").map_or("", |at| &tail[at..]);
            it.capacity =
                used.find(" of ").and_then(|at| size_at(&used[at + 4..])).map(|(it, _)| it);
            number(&mut it, "exceeded by", after(tail, "capacity by"));
            labelled(&mut it, lower);
        }
        TensorFlowShape => {
            it.backend = Backend::TensorFlow;
            it.requested = shapes::size(lower);
            it.device = device_after(lower, "device:gpu:");
            if lower.contains("device:cpu:") {
                it.kind = Kind::HostOutOfMemory;
            }
        }
        TensorFlowWarning => {
            it.backend = Backend::TensorFlow;
            it.kind = Kind::Warning;
            it.requested = after(lower, "trying to allocate");
            it.device = device_after(lower, "(gpu_");
        }
        TensorFlowHost => {
            it.backend = Backend::TensorFlow;
            it.kind = Kind::HostOutOfMemory;
            it.requested = after(lower, "of size").or_else(|| after(lower, "failed to alloc"));
        }
        TensorFlowDriver => {
            it.backend = Backend::TensorFlow;
            it.requested =
                after(lower, "trying to allocate").or_else(|| after(lower, "failed to allocate"));
            it.device = device_after(lower, "(gpu_");
        }
        Cublas => (it.backend, it.kind) = (Backend::Cublas, Kind::Perhaps),
        Cudnn => it.backend = Backend::Cudnn,
        CudnnAlgorithm => {
            it.backend = Backend::Cudnn;
            it.kind =
                if lower.contains("alloc_failed") { Kind::OutOfMemory } else { Kind::Perhaps };
        }
        Nccl => it.backend = Backend::Nccl,
        Runtime => {
            it.backend =
                if lower.contains("nccl warn") { Backend::Nccl } else { Backend::CudaRuntime };
            if lower.contains("on host") {
                it.kind = Kind::HostOutOfMemory;
            }
            it.requested =
                after(lower, "failed to alloc ").or_else(|| after(lower, "failed to allocate "));
        }
        Ggml => {
            it.backend = Backend::Ggml;
            it.device = device_after(lower, "on device");
            // The second line has it to the byte.
            it.requested = after(lower, "buffer of size").or_else(|| after(lower, "allocating "));
            number(&mut it, "allocating", after(lower, "allocating "));
        }
        Cupy => {
            it.backend = Backend::Cupy;
            it.requested = after(tail, "to allocate");
            it.allocated = after(tail, "(total").or_else(|| after(tail, "allocated so far"));
        }
        OnnxRuntime => {
            it.backend = Backend::OnnxRuntime;
            it.requested = after(tail, "of size");
        }
        Paddle => {
            it.backend = Backend::Paddle;
            it.device = device_after(tail, "on gpu");
            it.requested = after(tail, "cannot allocate");
            it.free = after(tail, "available memory is only");
            it.allocated = before(tail, "memory has been allocated");
        }
        PaddleEnforce => {
            it.backend = Backend::Paddle;
            it.requested = after(tail, "failed,");
            it.free = tail.find(" > ").and_then(|at| size_at(&tail[at + 3..])).map(|(it, _)| it);
        }
        AllocatorAssert => it.kind = Kind::Perhaps,
        HostAllocator => {
            (it.backend, it.kind) = (Backend::Host, Kind::HostOutOfMemory);
            it.requested = after(tail, "tried to allocate");
            // An old version forgot to put the number in: `%dGB. Buy new RAM!27`.
            if let Some(size) =
                int_after(tail, "buy new ram!").and_then(|it| it.checked_mul(1 << 30))
            {
                it.requested = Some(Bytes(size));
            }
        }
        HostKilled | HostNumpy => {
            (it.backend, it.kind) = (Backend::Host, Kind::HostOutOfMemory);
            it.requested = after(tail, "unable to allocate");
            if let Some(process) = int_after(tail, "killed process") {
                it.pid = u32::try_from(process).ok();
                it.allocated = after(tail, "anon-rss").map(|it| Bytes(it.0));
            }
        }
        Triton => {
            (it.backend, it.kind) = (Backend::Triton, Kind::NotMemory);
            it.requested = after(tail, "required");
            it.limit = after(tail, "hardware limit");
        }
        VllmFree => {
            it.backend = Backend::Vllm;
            it.device = ["cuda:", "xpu:", "hip:", "device "]
                .iter()
                .find_map(|word| device_after(lower, word));
            if let Some((free, total)) =
                lower.split_once('(').and_then(|(_, rest)| rest.split_once('/'))
            {
                it.capacity = size_at(total.trim()).map(|(it, _)| it);
                it.free = size_at(&format!("{} gib", free.trim())).map(|(it, _)| it);
            }
            it.requested = lower.rfind(" gib)").and_then(|at| before_at(lower, at + 4));
        }
        VllmCache => it.backend = Backend::Vllm,
        Bitsandbytes => it.backend = Backend::Bitsandbytes,
    }
    it
}

/// The caching allocator's templates of all versions and devices.
fn torch(it: &mut Failure, lower: &str) {
    it.backend = [
        ("hip out of memory", Backend::Hip),
        ("xpu out of memory", Backend::Xpu),
        ("npu out of memory", Backend::Npu),
        ("(npu ", Backend::Npu),
    ]
    .iter()
    .find_map(|(word, backend)| lower.contains(word).then_some(*backend))
    .unwrap_or(Backend::Cuda);
    it.requested = after(lower, "tried to allocate");
    it.device = ["(gpu ", " gpu ", "(npu ", " npu ", "gpu "]
        .iter()
        .find_map(|word| device_after(lower, word));
    it.capacity = before(lower, " total capac")
        .or_else(|| after(lower, "total capacity of"))
        .or_else(|| after(lower, "total capacty of"));
    it.free = before(lower, " is free")
        .or_else(|| before(lower, " free;"))
        .or_else(|| before(lower, " free)"));
    it.allocated =
        before(lower, " already allocated").or_else(|| before(lower, " is allocated by pytorch"));
    it.reserved = before(lower, " reserved in total by pytorch");
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

/// The last class name before the message: `torch.OutOfMemoryError`.
fn exception(text: &str) -> Option<String> {
    let mut res = None;
    for word in text.split(' ').take(40) {
        let name = word.trim_start_matches(['(', '[', '\'', '"', '│', '!', '-']);
        let Some((name, _)) = name.split_once(':') else { continue };
        let is_name = name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'.' || it == b'_');
        let is_class = ["Error", "Exception", "EnforceNotMet", "OutOfResources"]
            .iter()
            .any(|it| name.ends_with(it));
        if is_name && is_class && name.len() < 120 {
            res = Some(name.to_owned());
            break;
        }
    }
    res
}
