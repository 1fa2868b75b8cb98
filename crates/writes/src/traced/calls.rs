//! What becomes of one system call that names a file: it goes its way, it is given another name, or it is answered.
//! The meaning of arguments is that of the manual's section 2.

use std::{
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::PathBuf,
};

use libc::user_regs_struct;
use nix::{
    errno::Errno,
    unistd::{AccessFlags, Pid, access, geteuid},
};

use super::{
    arguments::{After, Buffer, Call, Name, Verdict, name},
    memory,
    place::{Found, Place},
    strangers::is_stranger,
};
use crate::mounts::SETTINGS;

impl Call<'_> {
    pub(super) fn decide(mut self) -> Verdict {
        match self.answer() {
            Ok(it) => it,
            Err(error) => Verdict::Return(-i64::from(error as i32)),
        }
    }

    fn number(&self) -> i64 {
        i64::from_ne_bytes(self.registers.orig_rax.to_ne_bytes())
    }

    fn answer(&mut self) -> Result<Verdict, Errno> {
        const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
        match self.number() {
            libc::SYS_open => self.open(name(None, 0, true), self.int(1)),
            libc::SYS_openat => self.open(name(Some(0), 1, true), self.int(2)),
            libc::SYS_creat => {
                self.open(name(None, 0, true), libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY)
            }

            libc::SYS_stat => self.stat(name(None, 0, true), 1, Buffer::Stat),
            libc::SYS_lstat => self.stat(name(None, 0, false), 1, Buffer::Stat),
            libc::SYS_newfstatat => {
                let it = name(Some(0), 1, !self.has(3, NOFOLLOW));
                if self.is_of_descriptor(it, 3)? {
                    return self.stat_descriptor(0, 2, Buffer::Stat);
                }
                self.stat(it, 2, Buffer::Stat)
            }
            libc::SYS_statx => {
                let it = name(Some(0), 1, !self.has(2, NOFOLLOW));
                if self.is_of_descriptor(it, 2)? {
                    return self.stat_descriptor(0, 4, Buffer::Statx);
                }
                self.stat(it, 4, Buffer::Statx)
            }
            libc::SYS_fstat => self.stat_descriptor(0, 1, Buffer::Stat),

            libc::SYS_access
            | libc::SYS_statfs
            | libc::SYS_getxattr
            | libc::SYS_listxattr
            | libc::SYS_execve
            | libc::SYS_chdir => self.look(name(None, 0, true)),
            libc::SYS_lgetxattr | libc::SYS_llistxattr => self.look(name(None, 0, false)),
            libc::SYS_inotify_add_watch => self.look(name(None, 1, true)),
            libc::SYS_faccessat => self.look(name(Some(0), 1, true)),
            libc::SYS_faccessat2 => {
                let it = name(Some(0), 1, !self.has(3, NOFOLLOW));
                if self.is_of_descriptor(it, 3)? { Ok(Verdict::Go) } else { self.look(it) }
            }
            libc::SYS_execveat => {
                let it = name(Some(0), 1, !self.has(4, NOFOLLOW));
                if self.is_of_descriptor(it, 4)? { Ok(Verdict::Go) } else { self.look(it) }
            }
            libc::SYS_readlink => self.read_link(name(None, 0, false), 1),
            libc::SYS_readlinkat => self.read_link(name(Some(0), 1, false), 2),
            libc::SYS_getcwd => self.current_folder(),

            libc::SYS_mkdir | libc::SYS_mknod => self.make(name(None, 0, false)),
            libc::SYS_mkdirat | libc::SYS_mknodat => self.make(name(Some(0), 1, false)),
            libc::SYS_symlink => self.make(name(None, 1, false)),
            libc::SYS_symlinkat => self.make(name(Some(1), 2, false)),
            libc::SYS_link => self.link(name(None, 0, false), name(None, 1, false), 0),
            libc::SYS_linkat => {
                let flags = self.int(4);
                let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
                self.link(name(Some(0), 1, follow), name(Some(2), 3, false), flags)
            }
            libc::SYS_unlink => self.remove(name(None, 0, false), false),
            libc::SYS_rmdir => self.remove(name(None, 0, false), true),
            libc::SYS_unlinkat => {
                self.remove(name(Some(0), 1, false), self.has(2, libc::AT_REMOVEDIR))
            }
            libc::SYS_rename => self.rename(name(None, 0, false), name(None, 1, false), 0),
            libc::SYS_renameat => self.rename(name(Some(0), 1, false), name(Some(2), 3, false), 0),
            libc::SYS_renameat2 => {
                let flags = self.int(4).unsigned_abs();
                self.rename(name(Some(0), 1, false), name(Some(2), 3, false), flags)
            }

            libc::SYS_truncate => self.change(name(None, 0, true), true),
            libc::SYS_chmod
            | libc::SYS_chown
            | libc::SYS_utime
            | libc::SYS_utimes
            | libc::SYS_setxattr
            | libc::SYS_removexattr => self.change(name(None, 0, true), false),
            libc::SYS_lchown | libc::SYS_lsetxattr | libc::SYS_lremovexattr => {
                self.change(name(None, 0, false), false)
            }
            libc::SYS_fchmodat => self.change(name(Some(0), 1, true), false),
            libc::SYS_futimesat if self.argument(1) == 0 => self.change_descriptor(0, None),
            libc::SYS_futimesat => self.change(name(Some(0), 1, true), false),
            libc::SYS_fchmodat2 => self.change_at(3, libc::SYS_chmod),
            libc::SYS_fchownat => self.change_at(4, libc::SYS_chown),
            libc::SYS_utimensat => self.change_at(3, libc::SYS_utimensat),
            libc::SYS_fchmod => self.change_descriptor(0, Some(libc::SYS_chmod)),
            libc::SYS_fchown => self.change_descriptor(0, Some(libc::SYS_chown)),
            libc::SYS_fsetxattr => self.change_descriptor(0, Some(libc::SYS_setxattr)),
            libc::SYS_fremovexattr => self.change_descriptor(0, Some(libc::SYS_removexattr)),

            libc::SYS_bind => self.socket(true),
            libc::SYS_connect => self.socket(false),
            libc::SYS_getsockname | libc::SYS_getpeername => Ok(self.name_of_socket()),
            _ => Ok(Verdict::Go),
        }
    }

    /// A call that changes nothing.
    fn look(&mut self, name: Name) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        self.go_to(name, &found, After::Nothing)
    }

    fn go_to(&mut self, name: Name, found: &Found, after: After) -> Result<Verdict, Errno> {
        if found.meta.is_none() && !matches!(found.place, Place::Through(_)) {
            return Err(Errno::ENOENT);
        }
        // Of a call that changes nothing, the kernel may read the program's own text, which another thread may change.
        if found.is_natural && only_looks(&self.registers) {
            return Ok(match after {
                After::Nothing => Verdict::Go,
                _ => Verdict::Instead(Box::new(self.registers), after),
            });
        }
        let path = found.place.path().to_owned();
        self.with_path(name.text, &path, after)
    }

    fn stat(&mut self, name: Name, buffer: usize, kind: Buffer) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        let after = match (found.is_folder(), &found.place) {
            (true, Place::Ours(_)) if self.view.looked(&found.path).is_some() => {
                let folder = found.path.clone();
                After::Looks { folder, buffer: self.argument(buffer), kind }
            }
            _ => After::Nothing,
        };
        self.go_to(name, &found, after)
    }

    fn stat_descriptor(&mut self, n: usize, buffer: usize, kind: Buffer) -> Result<Verdict, Errno> {
        let descriptor = name(Some(n), 0, false);
        let Ok(real) = self.folder_of(descriptor) else { return Ok(Verdict::Go) };
        let folder = self.view.named(&real);
        if self.view.is_in_layer(&real) && self.view.looked(&folder).is_some() {
            let after = After::Looks { folder, buffer: self.argument(buffer), kind };
            return Ok(Verdict::Instead(Box::new(self.registers), after));
        }
        Ok(Verdict::Go)
    }

    fn read_link(&mut self, name: Name, buffer: usize) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        let is_of_a_process = found.path.starts_with("/proc");
        let after = if is_of_a_process {
            After::Named { buffer: self.argument(buffer), size: self.argument(buffer + 1) }
        } else {
            After::Nothing
        };
        self.go_to(name, &found, after)
    }

    fn current_folder(&mut self) -> Result<Verdict, Errno> {
        let real = self.folder_of(name(None, 0, false))?;
        let named = self.view.named(&real);
        // It may be deleted, here or on the disk.
        std::fs::symlink_metadata(self.view.place_of(&named).path()).map_err(|_| Errno::ENOENT)?;
        if named == real {
            return Ok(Verdict::Go);
        }
        let mut bytes = named.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        if self.argument(1) < bytes.len() as u64 {
            return Err(Errno::ERANGE);
        }
        memory::write_bytes(self.task, self.argument(0), &bytes)?;
        Ok(Verdict::Return(i64::try_from(bytes.len()).unwrap_or_default()))
    }

    fn open(&mut self, mut name: Name, flags: i32) -> Result<Verdict, Errno> {
        let is_new_only = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
        name.follow = flags & libc::O_NOFOLLOW == 0 && !is_new_only;
        let found = self.find(name)?;
        let is_nameless = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        if matches!(found.place, Place::Through(_)) {
            if writes || flags & libc::O_CREAT != 0 {
                may_be_changed(&found)?;
            }
            return self.go_to(name, &found, After::Nothing);
        }
        if let Some((task, number)) = found.descriptor
            && (!writes || is_open_for_writing(task, number))
        {
            // `/dev/stdout` is what the user's shell has opened.
            let path = PathBuf::from(format!("/proc/{task}/fd/{number}"));
            return self.with_path(name.text, &path, After::Nothing);
        }
        if found.meta.is_none() {
            if flags & libc::O_CREAT == 0 || flags & libc::O_PATH != 0 {
                return Err(Errno::ENOENT);
            }
            let ours = self.view.open_folder_of(&found.path)?;
            return self.with_path(name.text, &ours, After::Nothing);
        }
        if is_nameless && found.is_folder() {
            if let Place::Theirs(it) = &found.place {
                access(it, AccessFlags::W_OK | AccessFlags::X_OK)?;
            }
            let ours = self.view.complete(&found.path)?;
            return self.with_path(name.text, &ours, After::Nothing);
        }
        let is_left = found.is_pipe() && !self.view.is_awaited(&found.path);
        let changes =
            flags & libc::O_PATH == 0 && !is_new_only && (is_left || (writes && found.is_file()));
        if let (true, Place::Theirs(it)) = (changes, &found.place) {
            // Where it may not be written to, the kernel says so itself.
            let needed = if writes { AccessFlags::W_OK } else { AccessFlags::R_OK };
            if access(it, needed).is_ok() {
                let ours = self.view.copy_up(&found.path, flags & libc::O_TRUNC == 0)?;
                return self.with_path(name.text, &ours, After::Nothing);
            }
        }
        self.go_to(name, &found, After::Nothing)
    }

    /// Where nothing is yet, the kernel makes it, with the program's own mask.
    fn make(&mut self, name: Name) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        if found.meta.is_some() {
            return Err(Errno::EEXIST);
        }
        may_be_changed(&found)?;
        if matches!(found.place, Place::Through(_)) {
            return self.go_to(name, &found, After::Nothing);
        }
        let ours = self.view.open_folder_of(&found.path)?;
        self.with_path(name.text, &ours, After::Nothing)
    }

    fn link(&mut self, from: Name, to: Name, flags: i32) -> Result<Verdict, Errno> {
        let target = self.find(to)?;
        if target.meta.is_some() {
            return Err(Errno::EEXIST);
        }
        may_be_changed(&target)?;
        // A file without a name gets one.
        let descriptor = if self.is_of_descriptor(from, 4)? && flags & libc::AT_EMPTY_PATH != 0 {
            from.from.map(|it| (self.task, self.int(it)))
        } else {
            None
        };
        let (source, nameless) = match descriptor {
            Some((task, number)) => (None, Some(format!("/proc/{task}/fd/{number}"))),
            None => {
                let found = self.find(from)?;
                let link =
                    found.descriptor.map(|(task, number)| format!("/proc/{task}/fd/{number}"));
                match (&found.place, link) {
                    (Place::Through(_), Some(link)) => (None, Some(link)),
                    _ => (Some(found), None),
                }
            }
        };
        if let Some(it) = &source {
            match (&it.meta, &it.place, &target.place) {
                (None, ..) => return Err(Errno::ENOENT),
                (Some(meta), ..) if meta.is_dir() => return Err(Errno::EPERM),
                (_, Place::Through(_), Place::Through(_)) => {
                    return self.with_paths((from, it), (to, &target));
                }
                (_, Place::Through(_), _) | (_, _, Place::Through(_)) => return Err(Errno::EXDEV),
                _ => (),
            }
        }
        let ours = self.view.open_folder_of(&target.path)?;
        let theirs = match (&source, nameless) {
            (Some(it), _) => self.view.copy_up(&it.path, true)?,
            (None, link) => link.unwrap_or_default().into(),
        };
        let cwd = nix::fcntl::AT_FDCWD;
        let follow = if source.is_none() {
            nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW
        } else {
            nix::fcntl::AtFlags::empty()
        };
        nix::unistd::linkat(cwd, &theirs, cwd, &ours, follow)?;
        Ok(Verdict::Return(0))
    }

    fn remove(&mut self, name: Name, is_folder: bool) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        if is_folder && self.view.is_door(&found.path) {
            return Err(Errno::EBUSY);
        }
        if matches!(found.place, Place::Through(_)) {
            may_be_changed(&found)?;
            return self.go_to(name, &found, After::Nothing);
        }
        if found.meta.is_none() {
            return Err(Errno::ENOENT);
        }
        self.view.remove(&found, is_folder)?;
        Ok(Verdict::Return(0))
    }

    fn rename(&mut self, from: Name, to: Name, flags: u32) -> Result<Verdict, Errno> {
        let (source, target) = (self.find(from)?, self.find(to)?);
        if self.view.is_door(&source.path) || self.view.is_door(&target.path) {
            return Err(Errno::EBUSY);
        }
        may_be_changed(&source)?;
        may_be_changed(&target)?;
        let is_through = |it: &Found| matches!(it.place, Place::Through(_));
        match (is_through(&source), is_through(&target)) {
            (true, true) => self.with_paths((from, &source), (to, &target)),
            (false, false) => {
                self.view.rename(&source, &target, flags)?;
                Ok(Verdict::Return(0))
            }
            // As between two disks: programs copy then.
            _ => Err(Errno::EXDEV),
        }
    }

    /// The call with what was found for each of its names.
    fn with_paths(
        &self,
        (from, source): (Name, &Found),
        (to, target): (Name, &Found),
    ) -> Result<Verdict, Errno> {
        let (mut registers, second) = (self.registers, self.scratch.second());
        self.put_path(&mut registers, from.text, source.place.path(), self.scratch)?;
        self.put_path(&mut registers, to.text, target.place.path(), second)?;
        Ok(Verdict::Instead(Box::new(registers), After::Nothing))
    }

    /// A call that changes a file's contents, or what is said of it.
    fn change(&mut self, name: Name, contents: bool) -> Result<Verdict, Errno> {
        let found = self.find(name)?;
        let Some(meta) = &found.meta else {
            return self.go_to(name, &found, After::Nothing);
        };
        may_be_changed(&found)?;
        if let Place::Theirs(it) = &found.place {
            let me = geteuid();
            let may = (!contents && (me.is_root() || meta.uid() == me.as_raw()))
                || access(it, AccessFlags::W_OK).is_ok();
            // Where we may not, the kernel says so itself.
            if may {
                let ours = self.view.copy_up(&found.path, true)?;
                self.view.has_own_looks(&found.path);
                return self.with_path(name.text, &ours, After::Nothing);
            }
        }
        if matches!(found.place, Place::Ours(_)) {
            self.view.has_own_looks(&found.path);
        }
        self.go_to(name, &found, After::Nothing)
    }

    /// `fchownat`, `utimensat`, `fchmodat2`: of a path, or of a descriptor when there is none.
    fn change_at(&mut self, flags: usize, by_path: i64) -> Result<Verdict, Errno> {
        let is_descriptor = (by_path == libc::SYS_utimensat && self.argument(1) == 0)
            || self.is_of_descriptor(name(Some(0), 1, true), flags)?;
        if is_descriptor {
            return self.change_descriptor(0, Some(by_path));
        }
        let follow = !self.has(flags, libc::AT_SYMLINK_NOFOLLOW);
        self.change(name(Some(0), 1, follow), false)
    }

    /// A change to an open file, which need not be open for writing: it is made to the copy, by its path.
    fn change_descriptor(&mut self, n: usize, by_path: Option<i64>) -> Result<Verdict, Errno> {
        let Ok(real) = self.folder_of(name(Some(n), 0, false)) else { return Ok(Verdict::Go) };
        let path = self.view.named(&real);
        if self.view.is_in_layer(&real) {
            self.view.has_own_looks(&path);
            return Ok(Verdict::Go);
        }
        let is_named = path.is_absolute() && std::fs::symlink_metadata(&real).is_ok();
        let place = self.view.place_of(&path);
        if is_setting(&place) {
            return Err(Errno::EROFS);
        }
        if !is_named || matches!(place, Place::Through(_)) {
            return Ok(Verdict::Go);
        }
        let Some(number) = by_path else { return Err(Errno::ENOSYS) };
        let ours = self.view.copy_up(&path, true)?;
        self.view.has_own_looks(&path);
        let mut registers = self.registers;
        let at_path = number == libc::SYS_utimensat;
        let with_flags =
            self.number() == libc::SYS_fchmodat2 || self.number() == libc::SYS_fchownat;
        registers.orig_rax = number.unsigned_abs();
        if at_path {
            registers.r10 = 0;
            self.put_path(&mut registers, 1, &ours, self.scratch)?;
        } else {
            if with_flags {
                // (folder, path, what...) becomes (path, what...).
                (registers.rsi, registers.rdx) = (registers.rdx, registers.r10);
            }
            self.put_path(&mut registers, 0, &ours, self.scratch)?;
        }
        Ok(Verdict::Instead(Box::new(registers), After::Nothing))
    }
}

/// What sets up the machine stays as it is, and so does what `/proc` has of processes that are not of the run, and the memory of
/// those that are: through that file memory is written that may only be read.
fn may_be_changed(found: &Found) -> Result<(), Errno> {
    if is_setting(&found.place) {
        return Err(Errno::EROFS);
    }
    let in_proc = found.path.strip_prefix("/proc").ok();
    if in_proc.is_some_and(|it| it.file_name().is_some_and(|name| name == "mem")) {
        return Err(Errno::EACCES);
    }
    let of_process = in_proc.and_then(|it| it.iter().next());
    match of_process.and_then(|it| it.to_str()?.parse().ok()) {
        Some(pid) if is_stranger(Pid::from_raw(pid)) => Err(Errno::EACCES),
        _ => Ok(()),
    }
}

fn is_setting(place: &Place) -> bool {
    matches!(place, Place::Through(it) if SETTINGS.iter().any(|settings| it.starts_with(settings)))
}

/// Whether a call changes nothing, by its number and flags.
pub(super) fn only_looks(registers: &user_regs_struct) -> bool {
    let flags = |flags: u64| {
        let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;
        flags & u64::from(writing.unsigned_abs()) == 0
    };
    match i64::from_ne_bytes(registers.orig_rax.to_ne_bytes()) {
        libc::SYS_open => flags(registers.rsi),
        libc::SYS_openat => flags(registers.rdx),
        libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_fstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_access
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_readlink
        | libc::SYS_readlinkat
        | libc::SYS_getcwd
        | libc::SYS_chdir
        | libc::SYS_execve
        | libc::SYS_execveat
        | libc::SYS_connect
        | libc::SYS_statfs
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr
        | libc::SYS_inotify_add_watch => true,
        _ => false,
    }
}

/// proc_pid_fdinfo(5): the flags in octal.
fn is_open_for_writing(task: Pid, number: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{task}/fdinfo/{number}")).unwrap_or_default();
    let flags = text.lines().find_map(|it| it.strip_prefix("flags:"));
    let flags = flags.and_then(|it| i32::from_str_radix(it.trim(), 8).ok()).unwrap_or_default();
    flags & libc::O_ACCMODE != libc::O_RDONLY
}
