//! A run that leaves no trace: the command sees the file system as it is, and what it writes goes into a
//! layer of its own. It reads back what it wrote, from any process that it starts; when the layer goes,
//! nothing of the user's has changed.
//!
//! There are three [ways](Way), and [`Layers::find`] takes the first that holds on this machine, by going it:
//!
//! | | needs | costs a run | cannot |
//! |---|---|---|---|
//! | mounts | to be root of the machine | some 20 ms | write files on which something is mounted (`/etc/hosts` in a container); mount, set up the network, trace others |
//! | user namespace | Linux 5.12, not forbidden | some 40 ms | the same; change files that belong to others or to another group; `sudo` |
//! | traced | ptrace and seccomp | some microseconds for each call that names a file | be debugged; `sudo`; mount |
//!
//! What is not covered is there read-only, so what was overlooked is refused and not harmed. `/dev`, `/proc` and `/run` are the
//! machine's and stay as they are; what sets it up (`/proc/sys`, `/sys`) can be read only, and shared memory has a layer. Sockets that
//! somebody listens at, and named pipes that the command names or somebody has open, are reached.
//! Our [own folder](OwnFolder) is covered like everything else; only the folders that [`Layers::fresh`] is given are written to in
//! truth: a session's recordings. The layer itself is not seen. Of the descriptors that the command is given, folders and files that are
//! open for reading are opened again in the world; what is open for writing, such as a file that a shell opened for its output, is written where it was.
//!
//! What a run has beside its files:
//!
//! | | mounts | user namespace | traced |
//! |---|---|---|---|
//! | shared memory, semaphores and queues (sysvipc(7), mq_overview(7)) | its own | its own | removed with the layer, but not when we are killed |
//! | keys (keyrings(7)) | stay as long as the user's session | the same | the same |
//! | signals to others | refused from Linux 6.12 on (landlock(7)), and not before | refused | refused |
//! | others' priority, processors and limits | changed | refused | refused |
//! | `/proc/PID/oom_score_adj` of others | changed | changed | refused |
//! | others' memory, root and folder (`/proc/PID/mem`, `root`, `cwd`) | refused; before 6.12 not of root's processes that have fewer rights than it | refused | refused or in the layer |
//! | settings of the machine (`sysctl`, host name, clock, network) | refused | refused | refused, but for the network's |
//! | processes that it leaves running, when we are killed | killed by a guard | killed with the tracer | killed with the tracer |
//!
//! A layer is bounded ([`Ask::max_bytes`], [`Layer::is_full`]). Files of zeros that nobody has open are turned into holes
//! before it is called full; `plimsoll-writes-preload` makes them holes as they are written.
//!
//! A file that was opened for reading before another descriptor changes it for the first time goes on showing what was
//! there (`overlayfs.rst`, "Non-standard behavior"), under each way.
//!
//! ```no_run
//! # use std::{path::Path, process::Command};
//! # use plimsoll_writes::{Ask, Layers, OwnFolder};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let own = OwnFolder::below(Path::new("/home/me/.cache/plimsoll"))?;
//! let layers = Layers::find(Ask::new(&own))?;
//! let mut layer = layers.fresh(&[])?; // One for each trial: each begins with the same world.
//! let mut command = Command::new("python3");
//! command.arg("train.py");
//! layer.attach(&mut command)?;
//! command.spawn()?.wait()?;
//! for it in layer.written()? {
//!     println!("{} {}", it.kind.word(), it.path.display());
//! }
//! # Ok(())
//! # }
//! ```
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod downloads;
mod folder;
mod gate;
mod guard;
mod inherited;
mod layers;
mod mounts;
mod namespaces;
mod own_folder;
mod plan;
mod sys;
mod traced;
mod tree;
mod written;

pub use downloads::Download;
pub use folder::Folder;
pub use layers::{Ask, Layer, Layers, NoWay, TRACER, Way};
pub use own_folder::OwnFolder;
pub use traced::{refuse_namespaces, trace};
pub use written::{Kind, Written};
