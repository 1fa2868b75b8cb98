//! What one process left behind: its [`Trace`], the agent's notes and the phantom's own account.
//! Pure data; the formats they come in are `sources`' to know, what follows from them `prediction`'s.

mod alarms;
pub mod contract;
mod counts;
mod curve;
mod engine;
mod host;
mod missing_stacks;
mod notes;
mod phantom;
mod plan_notes;
mod reached;
mod settings_changes;
mod sites;
mod weights;

pub use alarms::{Alarm, AlarmNote};
pub use curve::{Curve, CurveDevice};
pub use engine::{ENGINES, EngineNote, EngineWords, OtherFlag, Refusal};

pub use host::{HostGrowth, HostOwner};
pub use notes::{
    Ahead, AskedSize, Begin, CodeLine, CutLoop, DeviceStats, End, EndReason, Exception, FirstGpu,
    FirstStep, Form, GraphNote, HostNote, InPieces, Keeper, Keepers, LargeBatch, Later, LoopLines,
    LoopStage, Mark, MarkKind, Mentions, Models, NamedTensor, Notes, OomNote, Operand, Padding,
    Phase, Place, ReadNote, Recast, Redone, RedoneNote, RedoneWay, Remark, Role, SettingsNote,
    Shape, Spread, StacksNote, StepTimes, Table, Tensors, Unfolded, Unlimited, Unowned,
    Unsupported, WaitsIn, WrittenOut,
};
pub use phantom::{Approximated, Holder, NotImitated, PhantomDevice, PhantomReport};
pub use plan_notes::{At, Averages, PlanNotes, Reading, Refused, Split, Survey, Work};
pub use reached::{Destination, Reached, Transport};
pub use sites::{Batch, Blocks, Call, Framework, Setting, Site, SiteKind, Sites, Span, Switches};
pub use weights::{Skip, Unfrozen, WeightsNote, WideWeights};

use crate::{
    trace::{Action, Trace},
    units::Bytes,
};

/// What one process left behind.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The process id it had.
    pub pid: u32,
    /// What it asked of its allocators; none if it never used one, or died before writing.
    pub trace: Option<Trace>,
    /// What the agent saw.
    pub notes: Notes,
    /// What the phantom says of itself; none on a real GPU.
    pub phantom: Option<PhantomReport>,
}

impl Recording {
    /// Puts into the trace what only the notes say: the settings of each moment, and for steps that were recorded without stacks
    /// those of a step that did the same.
    pub fn complete_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            settings_changes::take_in(trace, &self.notes);
            missing_stacks::fill_in(trace, &mut self.notes);
        }
    }

    /// The first training step, of the device where it took most.
    pub fn largest_first_step(&self) -> Option<&FirstStep> {
        self.notes.first_steps.iter().max_by_key(|it| it.reserved)
    }

    /// Whether an out-of-memory error ended the process, or its training: a script that catches it to
    /// log it or to save what it can does not train on. One that finishes another step has recovered.
    pub fn ended_out_of_memory(&self) -> bool {
        let notes = &self.notes;
        let finished = self.finished_steps();
        if notes.ooms.last().is_some_and(|it| finished <= it.step) {
            return true;
        }
        match &notes.end {
            Some(end) => {
                let is_oom = |class: &str| class.ends_with("OutOfMemoryError");
                let exception = end.exception.as_ref();
                end.why == EndReason::Oom || exception.is_some_and(|it| is_oom(&it.class))
            }
            // It died at it, or was recorded without an agent: the last event says so.
            None => {
                let last_note = notes.ooms.last().is_some_and(|it| it.caught != Some(true));
                let devices = self.trace.iter().flat_map(|it| &it.devices);
                let mut actions = devices.map(|it| it.events.actions());
                last_note || notes.begin.is_none() && actions.any(no_alloc_follows_oom)
            }
        }
    }

    /// What NVIDIA's driver or a library wanted for itself at most, and did not find. Nothing if the script finished another step after that.
    pub fn lacked(&self) -> Bytes {
        let finished = u64::from(self.finished_steps());
        let devices = self.phantom.iter().flat_map(|it| &it.devices);
        let ended = devices.filter(|it| it.lacked_steps.is_none_or(|steps| finished <= steps));
        ended.map(|it| it.lacked).max().unwrap_or_default()
    }

    fn finished_steps(&self) -> u32 {
        let notes = &self.notes;
        let marked = notes.marks.iter().map(|it| it.step).max().unwrap_or(0);
        marked.max(notes.end.as_ref().map_or(0, |it| it.steps))
    }
}

fn no_alloc_follows_oom(actions: &[Action]) -> bool {
    let last = actions.iter().rposition(|it| matches!(it, Action::Oom | Action::Alloc));
    last.is_some_and(|it| actions[it] == Action::Oom)
}

/// Whether `file` is our agent's, which no report shows.
pub(crate) fn is_agents_code(file: &str) -> bool {
    file.contains("/plimsoll_agent/")
}

/// Whether `file` is the user's own: not installed, not Python's, not ours, not C++.
pub fn is_users_code(file: &str, line: u32) -> bool {
    let installed = ["/site-packages/", "/dist-packages/", "/lib/python3"];
    let is_installed = is_agents_code(file) || installed.iter().any(|it| file.contains(it));
    // PyTorch and Transformers in a checkout of theirs, and what PyTorch's compiler wrote.
    let developed = [
        "/torch/nn/",
        "/torch/autograd/",
        "/torch/optim/",
        "/torch/utils/",
        "/torch/distributed/",
        "/torch/cuda/",
        "/torch/amp/",
        "/torch/_",
        "/src/transformers/",
        "/src/accelerate/",
        "/torchinductor_",
    ];
    let is_installed = is_installed || developed.iter().any(|it| file.contains(it));
    // What was typed into a notebook or a prompt has no file and is somebody's own.
    let is_typed = file.starts_with("<ipython-input-") || file == "<stdin>";
    let is_nowhere = file.is_empty() || file == "??" || file.starts_with('<') && !is_typed;
    let is_cpp =
        [".cpp", ".cc", ".c", ".h", ".cu", ".so", ".pyx"].iter().any(|it| file.ends_with(it));
    // What starts a package's command: `/venv/bin/torchrun`.
    let is_command = file
        .rsplit_once('/')
        .is_some_and(|(folder, name)| folder.ends_with("/bin") && !name.contains('.'));
    line != 0
        && !is_installed
        && !is_nowhere
        && !is_cpp
        && !is_command
        && !file.ends_with("/sitecustomize.py")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_code_is_what_nobody_installed() {
        assert!(is_users_code("/home/user/train.py", 3));
        assert!(is_users_code("train.py", 3));
        assert!(is_users_code("/opt/project/lib/models/net.py", 3));
        assert!(is_users_code("/home/user/torch/train.py", 3));
        assert!(is_users_code("/home/user/bin/train.py", 3));
        assert!(is_users_code("<ipython-input-3-1a2b3c4d5e6f>", 3));
        for file in [
            "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
            "/usr/lib/python3/dist-packages/numpy/core.py",
            "/usr/lib/python3.11/threading.py",
            "<frozen runpy>",
            "??",
            "",
            "/venv/bin/torchrun",
            "cupy/cuda/memory.pyx",
            "/cache/ab12/agent/plimsoll_agent/run/modules.py",
            "/cache/ab12/agent/sitecustomize.py",
            "/home/user/pytorch/torch/_tensor.py",
            "/workspace/pytorch/torch/nn/modules/linear.py",
            "/home/user/transformers/src/transformers/trainer.py",
            "/scratch/torchinductor_user/ab/cab4x.py",
            "/pytorch/c10/cuda/CUDACachingAllocator.cpp",
        ] {
            assert!(!is_users_code(file, 3), "{file}");
        }
        assert!(!is_users_code("/home/user/train.py", 0));
    }
}
