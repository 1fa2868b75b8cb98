//! The host's memory: which part of it ran out, and what helps there.

use crate::failures::{
    Backend, Failure,
    verdict::{Cause, Verdict, verdict},
};

/// What helps where memory of the host cannot be pinned.
pub(super) const PINNED: &[&str] = &[
    "set `pin_memory=False` in the DataLoader, or prefetch less: `num_workers` times `prefetch_factor` batches wait",
    "in a container: `docker run --ulimit memlock=-1`. WSL and Windows can pin only a part of the RAM",
    "offloaded weights and activations are pinned too: `pin_memory: false` in DeepSpeed's `offload_param` and `offload_optimizer`",
];
const SHM: &str = "in a container: `docker run --shm-size=8g`, or `--ipc=host`; in Kubernetes an `emptyDir` with `medium: Memory` at /dev/shm";

/// A part of the host's memory that has limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// The RAM, or what a container or a job may use of it.
    Ram,
    /// What Windows promises: RAM and page file together.
    Commit,
    /// `/dev/shm`, for DataLoader workers.
    Shared,
    /// `/dev/shm`, for the ranks of NCCL.
    SharedByRanks,
    /// RAM that cannot be swapped out.
    Pinned,
    /// The RAM, that compilers need.
    Build,
}

impl Failure {
    /// Which part of the host's memory the message is about.
    pub fn host_memory(&self) -> HostMemory {
        let lower = self.text.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|it| lower.contains(it));
        if self.is_build {
            HostMemory::Build
        } else if has(&["winerror 1455", "os error 1455", "winerror 8]", "paging file"])
            // PyTorch's words on Windows; elsewhere it says that it cannot allocate.
            || has(&["defaultcpuallocator: not enough memory", "torch: not enough memory"])
        {
            HostMemory::Commit
        } else if has(&["/dev/shm/nccl", "ncclgroup"]) {
            HostMemory::SharedByRanks
        } else if has(&["shared memory", "to file </torch_", "bus error", "sigbus"])
            || has(&["exitcode: -7", "exitcode : -7", "exit code 135", "exit code: 135"])
        {
            HostMemory::Shared
        } else if has(&["cudahostalloc"]) {
            HostMemory::Pinned
        } else {
            HostMemory::Ram
        }
    }

    /// Whether it is Windows that says so.
    pub fn is_windows(&self) -> bool {
        let is_path = |file: &str| file.get(1..3) == Some(":\\");
        let frames = [&self.user_frame, &self.innermost];
        self.host_memory() == HostMemory::Commit
            || frames.iter().any(|it| it.as_ref().is_some_and(|it| is_path(&it.file)))
    }

    /// Whether it is a notebook that says that the process behind it is gone.
    fn is_of_a_notebook(&self) -> bool {
        let lower = self.text.to_ascii_lowercase();
        ["kernel", "session"].iter().any(|it| lower.contains(it))
            && ["died", "crashed"].iter().any(|it| lower.contains(it))
    }

    /// Whether it is Ray that says so.
    fn is_of_ray(&self) -> bool {
        ["ray.exceptions", "Ray killed", "RayOutOfMemory", "RayTask ID"]
            .iter()
            .any(|it| self.text.contains(it))
    }

    pub(super) fn host(&self) -> Verdict {
        let (why, remedies): (&str, &[&str]) = match self.host_memory() {
            HostMemory::Build => (
                "the host's memory (RAM) ran out while a package was compiled: each compiler process needs several GiB, and ninja starts one for each core",
                &BUILD,
            ),
            HostMemory::Commit => (
                "Windows cannot promise more memory: the commit limit is RAM plus page file, and it is reached. Each process that imports torch commits several GiB for CUDA's libraries, whether it uses them or not. The GPU is not involved",
                &[
                    "set `num_workers=0`, or fewer DataLoader workers: on Windows each of them imports torch again",
                    "enlarge the page file: System, Advanced, Performance settings, Advanced, Virtual memory (for example 32 to 64 GiB), then reboot",
                    "close other programs: column \"Commit size\" of Task Manager's details shows who has it",
                ],
            ),
            HostMemory::SharedByRanks => (
                "NCCL could not make its file in the host's shared memory (`/dev/shm`), which is full or too small; the ranks of one machine exchange data there. The GPU's memory is not involved",
                &[
                    SHM,
                    "delete the files of dead runs: `ls -lh /dev/shm`, then `rm /dev/shm/nccl-*` while no job runs",
                    "if you cannot enlarge it: NCCL_SHM_DISABLE=1, which is slower between cards without NVLink or peer access",
                ],
            ),
            HostMemory::Shared => (
                "the host's shared memory (`/dev/shm`) is full; DataLoader workers pass batches through it. The GPU is not involved",
                &[
                    SHM,
                    "use fewer DataLoader workers, or a smaller `prefetch_factor`",
                    "if you cannot enlarge it: `torch.multiprocessing.set_sharing_strategy('file_system')`",
                ],
            ),
            HostMemory::Pinned => (
                "the host's pinned memory ran out (RAM that cannot be swapped out, from which the GPU copies); the GPU's own memory is not involved",
                PINNED,
            ),
            HostMemory::Ram => return self.ram(),
        };
        let asked = self.requested.filter(|_| self.host_memory() == HostMemory::Commit);
        let asked = asked.map_or(String::new(), |it| format!("at a request for {it} "));
        verdict(Cause::Host, format!("{asked}{why}"), remedies)
    }

    /// Where more of the RAM is to be had, by who ended the program.
    fn more_ram(&self) -> &'static str {
        let lower = self.text.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|it| lower.contains(it));
        // CUDA's name of the error has Slurm's word for the state in it.
        let is_slurms = has(&["slurm", "srun", "stepid"])
            || has(&["out_of_me"]) && !has(&["cuda_error_out_of_memory"]);
        if self.is_windows() {
            "enlarge the page file, and close other programs: Task Manager shows who has the memory"
        } else if is_slurms {
            "ask Slurm for more: `sbatch --mem=64G`, or `--mem-per-cpu`; `sacct -j JOB --format=State,MaxRSS,ReqMem` shows what the job used and had"
        } else if has(&["your notebook tried", "crashed after using all available ram"]) {
            "the RAM of a Kaggle or Colab notebook is fixed: load less at a time, delete what is not needed any more, or choose a machine with more (Colab: \"High-RAM\")"
        } else {
            "raise the container's memory limit, or look for another process with `free -h` and `top`"
        }
    }

    /// The shape of the array that was requested, where numpy shows it.
    fn array(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("for an array with shape ")?;
        rest.split_once(')').map(|it| it.0.trim_start_matches('('))
    }

    fn ram(&self) -> Verdict {
        let asked = self.requested.map_or(String::new(), |it| format!(" at a request for {it}"));
        let held = match (self.allocated, self.limit) {
            (Some(had), Some(limit)) => {
                format!(": the process used {had}, with a limit of {limit}")
            }
            (None, Some(limit)) => format!(": the limit is {limit}"),
            _ => String::new(),
        };
        let array =
            self.array().map_or(String::new(), |it| format!(" for an array of shape ({it})"));
        let why =
            format!("the host's memory (RAM) ran out{asked}{array}{held}; the GPU is not involved");
        if self.is_of_ray() {
            return verdict(
                Cause::Host,
                why,
                &[
                    "see in Ray's list of the largest users who grew: Ray ends the task that began last, which may be another one",
                    "run fewer tasks and workers at a time on a node, set a smaller `object_store_memory`, and delete results that were used",
                ],
            );
        }
        if self.backend == Backend::TensorFlow {
            let pinned = "TensorFlow keeps memory of the host pinned for copies to the GPU, and asks for twice as much each time: a smaller batch, a smaller `shuffle` buffer and `prefetch` of the `tf.data` pipeline";
            return verdict(Cause::Host, why, &[pinned, self.more_ram()]);
        }
        if self.backend == Backend::OnnxRuntime {
            return verdict(Cause::Host, why, &[self.offers()[0], self.more_ram()]);
        }
        let remedies = match self.array() {
            Some(_) => [
                "check that the array is meant to have that shape; if it is: make it in parts, in a smaller type (float32, uint8), or as a file with `numpy.memmap`",
                "delete arrays that are not needed any more, and use fewer DataLoader workers: each may have a copy",
                self.more_ram(),
            ],
            None => [
                "use fewer DataLoader workers, a smaller `prefetch_factor`, no `pin_memory` for large batches",
                "load weights with `torch.load(..., mmap=True)` or from safetensors, directly onto the device (`map_location`)",
                self.more_ram(),
            ],
        };
        verdict(Cause::Host, why, &remedies)
    }

    /// What is probably the host's memory, and may be something else.
    pub(super) fn host_perhaps(&self) -> Verdict {
        let is_shm_file = self.text.to_ascii_lowercase().contains("shared memory object");
        let (why, remedies): (&str, &[&str]) = match self.host_memory() {
            HostMemory::Build => (
                "signal 9 ended a compiler. Mostly the kernel sends it, because the host's memory (RAM) ran out: each compiler process needs several GiB, and ninja starts one for each core",
                &BUILD,
            ),
            HostMemory::Shared if is_shm_file => (
                "a tensor could not be put into the host's shared memory (`/dev/shm`). Either `/dev/shm` is full, or the process has too many open files; the message does not say which",
                &[
                    SHM,
                    "run `ulimit -n 65536` before the program starts, and call `torch.multiprocessing.set_sharing_strategy('file_system')`",
                    "use fewer DataLoader workers",
                ],
            ),
            HostMemory::Shared | HostMemory::SharedByRanks => (
                "a bus error (signal 7) ended a process. Mostly the host's shared memory (`/dev/shm`) is full: DataLoader workers and NCCL put data there, and a container has 64 MiB of it. A file that shrank while it was mapped (a network disk) gives the same error",
                &[
                    SHM,
                    "to see how full it is while the program runs: `df -h /dev/shm`",
                    "use fewer DataLoader workers, or a smaller `prefetch_factor`",
                ],
            ),
            HostMemory::Ram if self.is_of_a_notebook() => (
                "the process behind the notebook (its kernel) ended without an error of its own. Mostly the system ended it, because the host's memory (RAM) ran out; a crash inside of a library looks the same. A full GPU raises an error instead",
                &[
                    "watch the RAM while the cell runs (`free -h`, the notebook's own meter): if it fills, load less at a time, and delete what is not needed any more",
                    "run the same code as a script: its last lines say more than the notebook does",
                    "if the RAM stays free, look for the crash in the notebook server's log (`Segmentation fault`), and run with `python -X faulthandler`",
                ],
            ),
            HostMemory::Ram if self.is_of_ray() => (
                "a worker of Ray ended without an error of its own. Mostly the kernel ended it, because the host's memory (RAM) ran out; a crash and `ray stop` look the same. A full GPU raises an error instead",
                &[
                    "to see who sent it: `dmesg -T | grep -i killed` on that node, and the dead worker's own log (`ray logs`)",
                    "if memory was the cause: fewer workers on a node, weights that are loaded by one of them at a time, a smaller `object_store_memory`",
                ],
            ),
            HostMemory::Ram | HostMemory::Commit | HostMemory::Pinned => (
                "signal 9 ended a process. Mostly the kernel or a container sends it, because the host's memory (RAM) ran out; a batch system's time limit and `kill -9` look the same. A full GPU raises an error instead",
                &[
                    "to see who sent it: `dmesg -T | grep -i killed`, `kubectl describe pod`, `sacct -j JOB --format=State,MaxRSS`",
                    "if memory was the cause: use fewer DataLoader workers, a smaller `prefetch_factor`, and load weights with `torch.load(..., mmap=True)` or from safetensors",
                    "raise the memory limit of the container or of the batch system",
                ],
            ),
        };
        verdict(Cause::Unknown, why, remedies)
    }
}

const BUILD: [&str; 3] = [
    "compile fewer files at a time: `MAX_JOBS=2 pip install ...`, with CMake `--parallel 2`; for CUDA also `NVCC_THREADS=1`",
    "install a wheel that is built already for your torch, CUDA and Python",
    "raise the container's memory limit, or add swap",
];
