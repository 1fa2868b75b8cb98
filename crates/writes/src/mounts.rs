//! What is mounted where, as `/proc/self/mountinfo` says it (proc_pid_mountinfo(5)).

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// One mount, the topmost at its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) place: PathBuf,
    /// `ext4`, `proc`, `nfs4`.
    pub(crate) kind: String,
    pub(crate) read_only: bool,
}

/// The mounts of this process, parents before what is below them.
#[derive(Clone, Debug)]
pub(crate) struct Mounts(Vec<Mount>);

/// File systems that hold no files of anybody's: views of the kernel, which other programs talk through.
const OF_THE_KERNEL: [&str; 22] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "fuse.lxcfs",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// Folders of the machine, not of its users: devices, sockets, shared memory. They are left as they are.
const OF_THE_MACHINE: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// What is in there sets up the machine, for everybody and beyond the run: it can be read and not written to.
pub(crate) const SETTINGS: [&str; 6] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"];

impl Mounts {
    pub(crate) fn read() -> io::Result<Mounts> {
        Ok(Mounts::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Mounts {
        let mut res: Vec<Mount> = Vec::new();
        for line in text.split(|it| *it == b'\n') {
            if let Some(mount) = parse_line(line) {
                // What is mounted later on the same place hides what was there.
                res.retain(|it| it.place != mount.place);
                res.push(mount);
            }
        }
        res.sort_by(|a, b| a.place.cmp(&b.place));
        Mounts(res)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// The mount that `path` lies on.
    pub(crate) fn of(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|it| path.starts_with(&it.place))
    }

    /// Whether anything is mounted below `path`, not on it.
    pub(crate) fn has_below(&self, path: &Path) -> bool {
        self.0.iter().any(|it| it.place != path && it.place.starts_with(path))
    }

    /// Whether `path` is a place whose contents are no files: it stays what it is for every process.
    pub(crate) fn is_no_files(&self, path: &Path) -> bool {
        OF_THE_MACHINE.iter().any(|it| path.starts_with(it))
            || self.of(path).is_some_and(|it| OF_THE_KERNEL.contains(&it.kind.as_str()))
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|it| *it == b' ');
    let place = words.by_ref().nth(4)?;
    let options = words.next()?;
    let mut words = words.skip_while(|it| *it != b"-").skip(1);
    let kind = String::from_utf8(words.next()?.to_vec()).ok()?;
    let of_disk = words.nth(1)?;
    let read_only =
        [options, of_disk].iter().any(|it| it.split(|c| *c == b',').any(|it| it == b"ro"));
    Some(Mount { place: unescape(place), kind, read_only })
}

/// The kernel writes space, tab, newline and backslash as `\040`.
fn unescape(text: &[u8]) -> PathBuf {
    let mut res = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        match code.and_then(|it| u8::from_str_radix(it, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                res.push(byte);
                rest = &after[3..];
            }
            None => {
                res.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(res))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAPTOP: &[u8] = b"\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
28 27 0:25 / /mnt/my\\040disk rw,nosuid shared:7 master:2 - ext4 /dev/sdb ro
29 27 0:26 / /home rw - autofs systemd-1 rw
30 29 0:27 / /home rw - nfs4 server:/home rw
";

    #[test]
    fn reads_what_is_mounted() {
        let mounts = Mounts::parse(LAPTOP);
        let all: Vec<_> = mounts.iter().map(|it| (it.place.to_str().unwrap(), &*it.kind)).collect();
        let expected =
            [("/", "ext4"), ("/home", "nfs4"), ("/mnt/my disk", "ext4"), ("/proc", "proc")];
        assert_eq!(all, expected);
        assert!(mounts.of(Path::new("/mnt/my disk/a")).unwrap().read_only);
        assert!(!mounts.of(Path::new("/mnt/my disks")).unwrap().read_only);
        assert!(mounts.has_below(Path::new("/mnt")));
        assert!(!mounts.has_below(Path::new("/home")));
        assert!(mounts.is_no_files(Path::new("/proc/1")));
        assert!(!mounts.is_no_files(Path::new("/home/a")));
    }
}
