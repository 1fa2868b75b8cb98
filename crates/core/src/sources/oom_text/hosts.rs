//! What is said where the host ran out: by libraries, the kernel, containers, batch systems and shells.

use Backend::{Host, TensorFlow};
use Kind::{HostOutOfMemory, MaybeOutOfMemory, NotMemory};
use Number::{Allocated, Free, Limit, Requested};

use crate::{
    failures::{Backend, Instead, Kind},
    sources::oom_text::{
        form::{Form, Number, Place, form, host, is_class},
        readers,
    },
};

/// Where the words are clear.
pub(super) const CLEAR: &[Form] = &[
    host(&["defaultcpuallocator"], &[(Requested, "tried to allocate")])
        .long()
        .plain()
        .read(readers::cpu_allocator),
    form(
        HostOutOfMemory,
        TensorFlow,
        &["could not allocate pinned host memory", "bytes on host: cuda_error_out_of_memory"],
        &[(Requested, "of size"), (Requested, "failed to alloc")],
    ),
    // PyTorch's words before the above.
    host(&["posix_memalign"], &[]).also(&["12 vs 0"]),
    host(&["torch: not enough memory"], &[(Requested, "tried to allocate")]),
    host(&["cudahostalloc failed"], &[(Requested, "of size")]),
    host(&["mib of pinned memory"], &[(Requested, "failed to allocate")])
        .also(&["failed to allocate"]),
    host(
        &["ggml_backend_cpu_buffer_type_alloc_buffer: failed", "failed to allocate cpu buffer"],
        &[(Requested, "buffer of size")],
    ),
    host(&["unable to allocate cpu buffer"], &[]),
    host(&["requires more system memory"], &[(Requested, "system memory"), (Free, "is available")]),
    host(&["low on memory"], &[]).also(&["was killed"]).long().read(readers::ray),
    host(&["rayoutofmemoryerror"], &[]),
    form(MaybeOutOfMemory, Host, &["a worker died or was killed while executing a task"], &[])
        .plain(),
    // Ray, systemd-oomd, the kubelet, earlyoom.
    host(&["due to memory pressure"], &[]).also(&["killed"]),
    host(
        &["the node was low on resource: memory"],
        &[(Free, "available"), (Allocated, "was using")],
    )
    .long(),
    host(&["sending sigterm to process", "sending sigkill to process"], &[(Allocated, "vmrss")])
        .also(&["oom_score"]),
    host(
        &[
            "out of shared memory",
            "insufficient shared memory (shm)",
            "is killed by signal: bus error",
        ],
        &[],
    ),
    // Not memory: each tensor on its way between processes keeps a file open.
    form(
        NotMemory(Instead::OpenFiles),
        Host,
        &["unable to open shared memory object", "received 0 items of ancdata"],
        &[],
    )
    .if_holds(is_open_files),
    host(&["unable to open shared memory object"], &[]).also(&["no space left", "memory (12)"]),
    form(MaybeOutOfMemory, Host, &["unable to open shared memory object"], &[]),
    host(
        &["creating shared memory segment /dev/shm/nccl", "failed to extend /dev/shm/nccl"],
        &[(Requested, "(size"), (Requested, " to ")],
    ),
    form(
        MaybeOutOfMemory,
        Host,
        &[
            "signal 7 (sigbus)",
            "caught signal 7 (bus error",
            "bus error (core dumped)",
            "exitcode: -7",
            "exitcode : -7",
            "exit code 135",
            "exit code: 135",
        ],
        &[],
    )
    .long()
    .read(readers::ended),
    // The process behind a notebook, which nobody asked how it ended.
    form(
        MaybeOutOfMemory,
        Host,
        &[
            "appears to have died. it will restart",
            "kernel died while waiting for execute reply",
            "deadkernelerror: kernel died",
            "the kernel crashed while executing code",
            "session crashed for an unknown reason",
        ],
        &[],
    ),
    form(
        NotMemory(Instead::Disk),
        Host,
        &["pytorchstreamwriter failed writing file", "kind: storagefull"],
        &[],
    ),
    // Not memory either: where the loader puts a library's variables, and how many threads may run.
    form(NotMemory(Instead::StaticTls), Host, &["static tls block"], &[]),
    form(
        NotMemory(Instead::Threads),
        Host,
        &[
            "pthread_create failed",
            "pthread_create: resource temporarily",
            "can't start new thread",
            "thread creation failed: resource temporarily",
        ],
        &[],
    ),
    host(&["unable to write to file </torch_", "unable to mmap"], &[(Requested, "unable to mmap")]),
    host(
        &["out of memory: killed process", "out of memory: kill process"],
        &[(Allocated, "anon-rss")],
    )
    .long()
    .read(readers::killed),
    host(&["oom-kill", "oom_kill", "oomkilled", "oom killed", "the oom killer"], &[])
        .if_holds(is_told),
    // Batch systems and notebooks that end a job themselves.
    host(&["term_memlimit", "exceeded step memory limit", "exceeded job memory limit"], &[]),
    host(&["pbs: job killed: mem"], &[(Allocated, "killed: mem"), (Limit, "exceeded limit")]),
    host(&["over cgroup memory limit of"], &[(Limit, "limit of"), (Allocated, "usage:")]).long(),
    host(&["out_of_me+", ", out_of_memory", "state: out_of_memory", "jobstate=out_of_memory"], &[])
        .also(&["out_of_me+", "slurm", "state"]),
    host(
        &["exceeded its memory limit", "exceeded memory limit", "memory limit exceeded"],
        &[(Limit, "limit of"), (Limit, "limit exceeded (")],
    ),
    host(
        &[
            "crashed after using all available ram",
            "tried to allocate more memory than is available",
            "container killed due to memory usage",
        ],
        &[],
    ),
    host(&["% memory budget"], &[]).also(&["worker"]),
    host(&["killed signal terminated program", "killed (program cc1"], &[]),
    host(&["out of memory"], &[]).also(&["srun: error", "slurmstepd", "c error: out of memory"]),
];

/// In words that others use as well.
pub(super) const SHARED: &[Form] = &[
    host(&["unable to allocate"], &[(Requested, "unable to allocate")]).also(&["memoryerror"]),
    // Java's.
    host(&["native memory allocation ("], &[(Requested, "failed to map"), (Requested, "allocate")])
        .also(&["failed to map", "failed to allocate"]),
    host(&["cannot allocate memory"], &[]).also(&["error", "errno 12"]),
    // Their words follow the system's language; their numbers do not.
    host(&["[errno 12]", "(os error 12)"], &[]),
    host(&["[winerror 1455]", "(os error 1455)", "[winerror 8]"], &[]),
    host(&["the paging file is too small"], &[]),
    host(&["memory allocation of"], &[(Requested, "allocation of")]).also(&["bytes failed"]),
    host(&["std::bad_alloc"], &[]),
    host(&["memoryerror"], &[]).if_holds(is_class),
    form(
        MaybeOutOfMemory,
        Host,
        &[
            "exit code 137",
            "exited with code 137",
            "exit status 137",
            "exit code: 137",
            "exitcode 137",
            "exitcode: 137",
            "with code -9",
            "exit code -9",
            "killed by signal 9",
            "terminated by signal 9",
            "exitcode: -9",
            "exitcode : -9",
            "return code = -9",
            "terminated with signal sigkill",
            "is killed by signal: killed",
        ],
        &[],
    )
    .read(readers::ended),
    form(MaybeOutOfMemory, Host, SHELLS, &[]).if_holds(is_shells),
];

/// What a shell says of a process that was killed, in the languages that it speaks.
pub(super) const SHELLS: &[&str] = &[
    "killed",
    "getötet",
    "processus arrêté",
    "terminado (killed)",
    "ucciso",
    "убито",
    "强制终止",
    "已杀死",
    "已终止",
    "已砍掉",
    "強制終了",
    "죽었음",
];

/// Whether the kernel did it, where a container's state says `\"OOMKilled\": false` of those that it did
/// not, a program compares with the word, and the kernel's call trace names its functions.
fn is_told(place: &Place<'_>) -> bool {
    let tail = place.lower[place.end..].trim_start_matches(['"', ':', '=', ' ']);
    let head = place.lower[..place.at].trim_end_matches(['"', '\'']).trim_end();
    let word = place.lower[place.end..].split_whitespace().next().unwrap_or_default();
    let is_function = word.contains("+0x");
    !tail.starts_with("false") && !tail.starts_with("no") && !head.ends_with("==") && !is_function
}

/// Whether there were too many of them.
fn is_open_files(place: &Place<'_>) -> bool {
    let line = &place.lower[..place.first];
    line.contains("too many open files") || line.contains("ancdata")
}

/// `Killed` as a shell says it: alone, or behind a process's number.
fn is_shells(place: &Place<'_>) -> bool {
    let line = &place.lower[..place.first];
    let head = line[..place.at].trim_end();
    // `run.sh: line 12: 30518 Killed   python train.py`, where `line` is in the shell's language, too.
    let mut parts = head.rsplit([':', '：']).map(str::trim);
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let is_pid = parts.next().is_some_and(is_number);
    let names_line = parts.next().is_some_and(|it| it.contains(|it: char| it.is_ascii_digit()));
    SHELLS.contains(&line) || is_pid && names_line
}
