//! The tracer's loop: what stops, why, and how it goes on (ptrace(2)). It knows nothing of files.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Write as _},
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::Path,
};

use libc::user_regs_struct;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::ptrace::{self, Options},
    unistd::Pid,
};

use super::{
    after::finish,
    arguments::{After, Call, Names, Verdict},
    calls::only_looks,
    memory::Scratch,
    objects::Objects,
    renames::Disks,
    report::write_report,
    scratch::{self, Places},
    strangers,
    view::View,
};
use crate::{
    gate::PAGE,
    sys::{self, Next, Stop},
};

/// Where commands' processes say that they are there, and are answered.
pub(super) struct Doors {
    pub(super) orders: File,
    pub(super) answers: File,
}

/// What is known of a task between two stops.
#[derive(Debug, Default)]
struct Task {
    /// Memory in it that is ours.
    scratch: Option<Scratch>,
    /// It runs a program of its own: what its parent's memory was like means nothing.
    has_program: bool,
    /// A call that the kernel is in.
    inside: Option<Inside>,
}

#[derive(Debug)]
enum Inside {
    /// Gets memory for us; then the program's call is made again.
    GettingScratch(Box<user_regs_struct>),
    /// A changed call: the program's registers, and what is left to do.
    Changed(Box<user_regs_struct>, After),
}

/// What the stopped calls are asked for.
pub(super) enum Job {
    /// All names are looked up in a layer, and what is made of the kernel's objects is remembered.
    Names(Box<View>, Gate, Objects),
    /// A world of overlays keeps the layer; renames are helped.
    Renames(Disks),
}

/// Calls that only look pass through it without a stop until something was written.
pub(super) struct Gate {
    page: File,
    is_open: bool,
}

impl Gate {
    /// `path` is where processes see whether it is open.
    pub(super) fn of(path: &Path, view: &View) -> std::io::Result<Gate> {
        let page = File::create_new(path)?;
        page.set_len(PAGE as u64)?;
        let is_open = view.is_untouched();
        page.write_all_at(&u32::from(is_open).to_ne_bytes(), 0)?;
        Ok(Gate { page, is_open })
    }

    /// Before the task goes on whose call made the first change.
    fn close_after(&mut self, view: &View) {
        if self.is_open && !view.is_untouched() {
            self.is_open = false;
            let _ = self.page.write_all_at(&0u32.to_ne_bytes(), 0);
        }
    }
}

/// All tasks, what is done for them, and the parent.
pub(super) struct Watcher {
    job: Job,
    doors: Doors,
    tasks: BTreeMap<Pid, Task>,
    places: Places,
}

/// Orders, instead of a process: to write the report, and to remove what the run has made of the kernel's objects.
pub(super) const REPORT: i32 = 0;
pub(super) const REMOVE: i32 = -1;

impl Watcher {
    pub(super) fn new(job: Job, doors: Doors) -> Watcher {
        Watcher { job, doors, tasks: BTreeMap::new(), places: Places::default() }
    }

    /// Until the parent and everything that was traced are gone. `report` is where the report goes.
    pub(super) fn run(&mut self, report: &Path) -> std::io::Result<()> {
        sys::let_orders_interrupt()?;
        self.doors.answers.write_all(&0i32.to_ne_bytes())?;
        let mut has_parent = true;
        loop {
            // Orders are rare and stops are many: who orders interrupts this wait, until there is an answer.
            let is_waiting = match sys::next_stop()? {
                Next::Stop(task, stop) => {
                    self.stopped(task, stop);
                    continue;
                }
                Next::Interrupted => PollTimeout::ZERO,
                Next::Nobody => PollTimeout::NONE,
            };
            if !has_parent && self.tasks.is_empty() {
                return Ok(());
            }
            let mut fds = [PollFd::new(self.doors.orders.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, is_waiting) {
                Ok(_) | Err(Errno::EINTR) => (),
                Err(error) => return Err(error.into()),
            }
            if has_parent && fds[0].any().unwrap_or(false) {
                has_parent = self.obey(report)?;
            }
        }
    }

    /// One order; false when there will be none any more.
    fn obey(&mut self, report: &Path) -> std::io::Result<bool> {
        let mut word = [0; 4];
        if self.doors.orders.read_exact(&mut word).is_err() {
            return Ok(false);
        }
        let error = match (i32::from_ne_bytes(word), &mut self.job) {
            (REPORT, Job::Names(view, ..)) if write_report(report, &view.written()).is_ok() => 0,
            (REPORT, _) => libc::EIO,
            (REMOVE, Job::Names(.., objects)) => {
                objects.remove();
                0
            }
            (REMOVE, _) => 0,
            (pid, _) => {
                let pid = Pid::from_raw(pid);
                let options = Options::PTRACE_O_TRACESYSGOOD
                    | Options::PTRACE_O_TRACESECCOMP
                    | Options::PTRACE_O_TRACEFORK
                    | Options::PTRACE_O_TRACEVFORK
                    | Options::PTRACE_O_TRACECLONE
                    | Options::PTRACE_O_TRACEEXEC
                    | Options::PTRACE_O_EXITKILL;
                match ptrace::seize(pid, options) {
                    Ok(()) => {
                        self.tasks.insert(pid, Task::default());
                        0
                    }
                    Err(error) => error as i32,
                }
            }
        };
        self.doors.answers.write_all(&error.to_ne_bytes())?;
        Ok(true)
    }

    /// Whatever fails here fails because the task is gone meanwhile: it was killed.
    fn stopped(&mut self, task: Pid, stop: Stop) {
        let _ = match stop {
            Stop::Gone => {
                self.tasks.remove(&task);
                Ok(())
            }
            Stop::Call => self.enter(task),
            Stop::CallDone => self.leave(task),
            // A process has its parent's memory, as it was or together with it, until it has its own program. Where both go on with
            // the same memory, each has a place of its own there.
            Stop::Forked(child) => {
                let shares = ptrace::getregs(task).is_ok_and(|it| scratch::is_shared_on(&it));
                let scratch = self.tasks.get(&task).and_then(|it| it.scratch).filter(|_| !shares);
                let known = self.tasks.entry(child).or_default();
                if !known.has_program {
                    known.scratch = known.scratch.or(scratch);
                }
                sys::go_on(task, None)
            }
            Stop::Executed(before) => {
                self.tasks.remove(&before);
                self.tasks.insert(task, Task { has_program: true, ..Task::default() });
                sys::go_on(task, None)
            }
            Stop::Held => sys::stay(task),
            Stop::Began | Stop::Other => {
                self.tasks.entry(task).or_default();
                sys::go_on(task, None)
            }
            Stop::Signal(signal) => sys::go_on(task, Some(signal)),
        };
    }

    fn enter(&mut self, task: Pid) -> Result<(), Errno> {
        let registers = ptrace::getregs(task)?;
        let of_others = strangers::decide(task, &registers, |it| self.tasks.contains_key(&it));
        if let Some(verdict) = of_others.or_else(|| scratch::decide(&registers)) {
            return self.carry_out(task, &registers, verdict);
        }
        let (view, gate) = match &mut self.job {
            Job::Names(view, ..) if view.is_untouched() && only_looks(&registers) => {
                return sys::go_on(task, None);
            }
            Job::Names(view, gate, _) => match Objects::decide(task, &registers) {
                Some(verdict) => return self.carry_out(task, &registers, verdict),
                None => (view, gate),
            },
            Job::Renames(disks) => {
                let is_there = disks.go_to(task);
                let names = Names { task, registers };
                let verdict = if is_there { disks.decide(&names) } else { Verdict::Go };
                return self.carry_out(task, &registers, verdict);
            }
        };
        let known = self.tasks.entry(task).or_default();
        let Some(scratch) = known.scratch else {
            let getting = self.places.get(&registers);
            known.inside = Some(Inside::GettingScratch(Box::new(registers)));
            ptrace::setregs(task, getting)?;
            return sys::go_on_to_end_of_call(task);
        };
        let verdict = Call { view, task, registers, scratch }.decide();
        gate.close_after(view);
        self.carry_out(task, &registers, verdict)
    }

    fn carry_out(
        &mut self,
        task: Pid,
        registers: &user_regs_struct,
        verdict: Verdict,
    ) -> Result<(), Errno> {
        match verdict {
            Verdict::Go => sys::go_on(task, None),
            Verdict::Return(res) => {
                let mut answered = *registers;
                answered.orig_rax = u64::MAX;
                answered.rax = u64::from_ne_bytes(res.to_ne_bytes());
                ptrace::setregs(task, answered)?;
                sys::go_on(task, None)
            }
            Verdict::Instead(changed, after) => {
                let known = self.tasks.entry(task).or_default();
                known.inside = Some(Inside::Changed(Box::new(*registers), after));
                ptrace::setregs(task, *changed)?;
                sys::go_on_to_end_of_call(task)
            }
        }
    }

    fn leave(&mut self, task: Pid) -> Result<(), Errno> {
        let now = ptrace::getregs(task)?;
        let res = i64::from_ne_bytes(now.rax.to_ne_bytes());
        let known = self.tasks.entry(task).or_default();
        match known.inside.take() {
            None => (),
            Some(Inside::GettingScratch(mut before)) => {
                const FAILED: i64 = -4096;
                // Where something lies already, the next place is tried.
                let is_taken = res == -i64::from(Errno::EEXIST as i32);
                if res < 0 && FAILED < res && !is_taken {
                    before.rax = now.rax;
                } else {
                    known.scratch = (!is_taken).then_some(Scratch(now.rax));
                    // Once more, from the instruction that made the call, which is two bytes long.
                    before.rip -= 2;
                    before.rax = before.orig_rax;
                }
                ptrace::setregs(task, *before)?;
            }
            Some(Inside::Changed(before, after)) => {
                let res = match &mut self.job {
                    Job::Names(view, _, objects) => {
                        if let After::Made(object) = &after {
                            objects.made(task, object, res);
                        }
                        finish(Some(view), task, &after, res)
                    }
                    // Another task may have led us elsewhere meanwhile.
                    Job::Renames(disks) => {
                        let is_there = disks.go_to(task);
                        if is_there { finish(None, task, &after, res) } else { res }
                    }
                };
                let mut own = *before;
                own.rax = u64::from_ne_bytes(res.to_ne_bytes());
                (own.rip, own.rcx, own.r11) = (now.rip, now.rcx, now.r11);
                ptrace::setregs(task, own)?;
            }
        }
        sys::go_on(task, None)
    }
}
