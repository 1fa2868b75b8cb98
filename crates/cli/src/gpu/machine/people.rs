//! Who a process is, as `/proc` tells everybody.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _};

use nix::unistd::{Uid, User};

use crate::gpu::machine::{plain, snapshot::Person};

/// Longer names are cut.
const LONGEST: usize = 64;
/// As much of a command line as is looked at.
const MOST_COMMAND: usize = 4096;

/// Names of accounts that were looked up.
#[derive(Debug, Default)]
pub(super) struct People(BTreeMap<u32, String>);

impl People {
    pub(super) fn person(&mut self, pid: u32) -> Option<Person> {
        let uid = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let program = program.trim();
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let script = script(&words).map(|it| format!(" {it}")).unwrap_or_default();
        let name = plain(&format!("{program}{script}"), LONGEST);
        Some(Person { uid, user: self.user(uid), name })
    }

    fn user(&mut self, uid: u32) -> String {
        let look = || {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            user.map_or_else(|| uid.to_string(), |it| plain(&it.name, LONGEST))
        };
        self.0.entry(uid).or_insert_with(look).clone()
    }
}

/// Whether process ids here are those of the host, as the driver tells them. In a container they are others: the same number is
/// somebody else.
pub(super) fn are_of_host() -> bool {
    // The first namespace has the same number on every Linux (PROC_PID_INIT_INO).
    fs::read_link("/proc/self/ns/pid").is_ok_and(|it| it.as_os_str() == "pid:[4026531836]")
}

/// Whether a process has a file of NVIDIA's driver open, as far as we may see that.
pub(super) fn uses_gpu(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let target = |it: fs::DirEntry| fs::read_link(it.path()).ok();
    open.filter_map(target).any(|it| it.to_string_lossy().starts_with("/dev/nvidia"))
}

/// When a process started, in the kernel's ticks since it booted: with the process id, a name that is never given twice.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses, and may have anything in it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_gone = matches!(fields.next()?, "Z" | "X");
    let started = fields.nth(18)?.parse().ok()?;
    (!is_gone).then_some(started)
}

/// Which script a Python runs: its file or its module. Arguments may be secret, and are not looked at.
fn script(words: &[u8]) -> Option<String> {
    let words = &words[..words.len().min(MOST_COMMAND)];
    let mut words = words.split(|it| *it == 0).map(String::from_utf8_lossy);
    let base = |it: &str| it.rsplit('/').next().unwrap_or_default().to_owned();
    if !base(&words.next()?).starts_with("python") {
        return None;
    }
    while let Some(word) = words.next() {
        match &*word {
            "-m" => return words.next().map(|it| it.into_owned()),
            "-W" | "-X" => {
                words.next();
            }
            "-c" | "-" | "" => return None,
            it if it.starts_with('-') => {}
            it => return Some(base(it)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_command_only_the_script_is_told() {
        let script = |it: &str| script(it.replace(' ', "\0").as_bytes());
        for (command, expected) in [
            ("/usr/bin/python3 -u -X dev /home/anna/train.py --token secret", Some("train.py")),
            ("python -m my.training --lr 1", Some("my.training")),
            ("python -c print(1)", None),
            ("python", None),
            ("/usr/lib/xorg/Xorg :0", None),
        ] {
            assert_eq!(script(command).as_deref(), expected, "{command}");
        }
    }

    #[test]
    fn this_process_has_a_name_and_a_start() {
        let person = People::default().person(std::process::id()).unwrap();
        assert_eq!(person.uid, nix::unistd::geteuid().as_raw());
        assert!(!person.name.is_empty() && !person.user.is_empty());
        assert!(started(std::process::id()).is_some());
        assert_eq!(People::default().person(u32::MAX), None);
    }
}
