//! Processes that are not of the run: calls that end, slow down or change one are refused. Signals to a group, or to all, reach
//! those that are the run's. Whoever is of the run is traced by us.

use std::fs;

use libc::{c_long, user_regs_struct};
use nix::{
    errno::Errno,
    unistd::{Pid, getpgid},
};

use super::arguments::{Verdict, low_half};
use crate::sys;

/// Calls that reach another process.
pub(super) const REACHING: [c_long; 15] = [
    libc::SYS_ioprio_set,
    libc::SYS_kill,
    libc::SYS_pidfd_send_signal,
    libc::SYS_prlimit64,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_setpriority,
    libc::SYS_tgkill,
    libc::SYS_tkill,
];

/// Those of them that mean the caller by 0.
pub(super) const MEANS_ITSELF_BY_0: [c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Whom a call means.
enum Whom {
    /// The caller, or nobody.
    Itself,
    Process(Pid),
    Group(Pid),
    /// `kill(-1)`.
    All,
    /// All of a user.
    User,
}

/// What becomes of such a call; nothing if it is another one. `is_known` says who is the run's; it may not know all yet.
pub(super) fn decide(
    task: Pid,
    registers: &user_regs_struct,
    is_known: impl Fn(Pid) -> bool,
) -> Option<Verdict> {
    let number = i64::from_ne_bytes(registers.orig_rax.to_ne_bytes());
    let refused = Verdict::Return(-i64::from(Errno::EPERM as i32));
    let is_strange = |it: Pid| !is_known(it) && is_stranger(it);
    let whom = whom(task, registers, number)?;
    Some(match whom {
        Whom::Process(it) if is_strange(it) => refused,
        Whom::Itself | Whom::Process(_) => Verdict::Go,
        Whom::User => refused,
        Whom::All | Whom::Group(_) => {
            let own = own_process(task);
            let is_meant = |pid: &Pid| match whom {
                Whom::Group(group) => getpgid(Some(*pid)) == Ok(group),
                _ => Some(*pid) != own,
            };
            let (strangers, ours): (Vec<Pid>, Vec<Pid>) =
                processes().filter(is_meant).partition(|it| is_strange(*it));
            if strangers.is_empty() && matches!(whom, Whom::Group(_)) {
                return Some(Verdict::Go);
            }
            if number != libc::SYS_kill {
                return Some(refused);
            }
            let signal = low_half(registers.rsi);
            let n_reached = ours.iter().filter(|it| sys::signal(**it, signal)).count();
            // As the kernel does: one that was reached is enough.
            if 0 < n_reached { Verdict::Return(0) } else { refused }
        }
    })
}

fn whom(task: Pid, registers: &user_regs_struct, number: c_long) -> Option<Whom> {
    let [first, second] = [registers.rdi, registers.rsi].map(low_half);
    let process = |it: i32| if it == 0 { Whom::Itself } else { Whom::Process(Pid::from_raw(it)) };
    let group = |id: i32| match id {
        0 => getpgid(Some(task)).map_or(Whom::Itself, Whom::Group),
        id => Whom::Group(Pid::from_raw(id)),
    };
    Some(match number {
        libc::SYS_kill => match first {
            -1 => Whom::All,
            it if it <= 0 => group(it.wrapping_neg()),
            it => process(it),
        },
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => process(second),
        libc::SYS_pidfd_send_signal => {
            const TO_GROUP: u64 = 1 << 2;
            match process_of(task, first) {
                Some(it) if registers.r10 & TO_GROUP != 0 => {
                    getpgid(Some(it)).map_or(Whom::Itself, Whom::Group)
                }
                it => it.map_or(Whom::Itself, Whom::Process),
            }
        }
        libc::SYS_setpriority | libc::SYS_ioprio_set => {
            let which = first - i32::from(number == libc::SYS_ioprio_set);
            match which {
                0 => process(second),
                1 => group(second),
                _ => Whom::User,
            }
        }
        // Asked only.
        libc::SYS_prlimit64 if registers.rdx == 0 => Whom::Itself,
        libc::SYS_ptrace => match libc::c_uint::try_from(first) {
            Ok(libc::PTRACE_ATTACH | libc::PTRACE_SEIZE) => process(second),
            _ => Whom::Itself,
        },
        it if REACHING.contains(&it) => process(first),
        _ => return None,
    })
}

/// Whom a descriptor of the task holds (pidfd_open(2); a folder of `/proc` does, too).
fn process_of(task: Pid, number: i32) -> Option<Pid> {
    let info = fs::read_to_string(format!("/proc/{task}/fdinfo/{number}")).ok()?;
    let pid = info.lines().find_map(|it| it.strip_prefix("Pid:"));
    let folder = fs::read_link(format!("/proc/{task}/fd/{number}")).unwrap_or_default();
    let name = folder.strip_prefix("/proc").ok().and_then(|it| it.to_str());
    let pid: i32 = pid.map(str::trim).or(name)?.parse().ok()?;
    (0 < pid).then(|| Pid::from_raw(pid))
}

/// Whether somebody else lives under this number, who is not traced by us. Whoever has ended feels nothing.
pub(super) fn is_stranger(pid: Pid) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let value = |key: &str| status.lines().find_map(|it| it.strip_prefix(key)).map(str::trim);
    let has_ended = value("State:").is_some_and(|it| it.starts_with(['Z', 'X']));
    let tracer = value("TracerPid:").and_then(|it| it.parse().ok());
    !has_ended && tracer != Some(std::process::id())
}

/// The process of a thread.
fn own_process(task: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let pid = status.lines().find_map(|it| it.strip_prefix("Tgid:"))?;
    Some(Pid::from_raw(pid.trim().parse().ok()?))
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).map(Pid::from_raw)
}
