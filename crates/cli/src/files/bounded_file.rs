//! The one door through which files are read: what people name, and what a project, a recording or a script names, which strangers wrote.
//! Behind a name may be a pipe that nobody writes to, a device without an end, or a file of any size: a regular file is read, up to a
//! bound that the caller says, and what is none is told by a sentence.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use plimsoll_core::units::Bytes;

/// What people write by hand, or a tool of ours: settings, cards, plans, what `check` compares with. The longest has some kilobytes.
pub(crate) const WRITTEN_BY_HAND: u64 = 1 << 20;
/// The source of a program; `plimsoll lint` reads no more of one.
pub(crate) const SOURCE: u64 = 4 << 20;
/// A report as JSON, or a notebook with its pictures.
pub(crate) const REPORT: u64 = 64 << 20;
/// What a run has noted since somebody looked.
const AT_ONCE: u64 = 64 << 20;
/// What a run of ours leaves or makes: a snapshot has some gigabytes at most.
pub(crate) const RECORDING: u64 = 32 << 30;

/// A regular file, from its beginning. A pipe keeps nobody waiting, and a device is not touched.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Opening some devices does something already.
    is_regular(fs::metadata(path)?.file_type())?;
    opened(path, OFlag::empty())
}

/// The same, if the name is no link.
#[cfg(feature = "phantom")]
pub(crate) fn open_unlinked(path: &Path) -> io::Result<File> {
    is_regular(fs::symlink_metadata(path)?.file_type())?;
    opened(path, OFlag::O_NOFOLLOW)
}

fn opened(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    // Somebody may have put another one there.
    is_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// The same, or a pipe that this process was started with: `<(zcat run.log.gz)` and `/dev/stdin` of a shell.
pub(crate) fn open_or_inherited(path: &Path) -> io::Result<File> {
    let is_pipe = fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo());
    let is_inherited = ["/dev/fd", "/dev/std", "/proc/self/fd"]
        .iter()
        .any(|it| path.as_os_str().as_encoded_bytes().starts_with(it.as_bytes()));
    if !(is_pipe && is_inherited) {
        return open(path);
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    // Whoever writes it is at work.
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

/// All of a regular file that has at most `most` bytes.
pub(crate) fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    all(open(path)?, most)
}

/// All of a file that was opened here.
pub(crate) fn all(file: File, most: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let mut res = Vec::new();
    if size <= most {
        // It may grow while it is read.
        file.take(most + 1).read_to_end(&mut res)?;
    }
    let size = size.max(res.len() as u64);
    if most < size {
        let (size, most) = (Bytes(size), Bytes(most));
        return Err(io::Error::other(format!("it has {size}, and plimsoll reads at most {most}")));
    }
    Ok(res)
}

/// The end of a regular file: its last `most` bytes.
#[cfg(feature = "phantom")]
pub(crate) fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let begin = file.metadata()?.len().saturating_sub(most);
    io::Seek::seek(&mut file, io::SeekFrom::Start(begin))?;
    let mut res = Vec::new();
    file.take(most).read_to_end(&mut res)?;
    Ok(res)
}

/// The whole lines that were written to a regular file behind `read_to`, which moves on; not more than [`AT_ONCE`] at a time.
pub(crate) fn lines_since(path: &Path, read_to: &mut u64) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(*read_to))?;
    let mut res = Vec::new();
    file.take(AT_ONCE).read_to_end(&mut res)?;
    res.truncate(res.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1));
    *read_to += res.len() as u64;
    Ok(res)
}

/// All of it as a text.
pub(crate) fn text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(bytes(path, most)?)
        .map_err(|_| io::Error::other("it is not a text: some of its bytes are not UTF-8"))
}

fn is_regular(found: FileType) -> io::Result<()> {
    let what = if found.is_file() {
        return Ok(());
    } else if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    } else if found.is_fifo() {
        "a pipe"
    } else if found.is_socket() {
        "a socket"
    } else if found.is_symlink() {
        "a link"
    } else {
        "a device"
    };
    Err(io::Error::other(format!("it is {what}, not a file")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn only_files_of_a_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "0123456789").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink(at("loop"), at("loop")).unwrap();
        symlink("/dev/tty", at("tty")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(bytes(&at("file"), 10).unwrap(), b"0123456789");
        assert_eq!(text(&at("link"), 10).unwrap(), "0123456789");
        let error = |name: &str| bytes(&at(name), 9).unwrap_err().to_string();
        assert_eq!(error("file"), "it has 10 B, and plimsoll reads at most 9 B");
        assert_eq!(error("sparse"), "it has 1024.00 GiB, and plimsoll reads at most 9 B");
        assert_eq!(error("zero"), "it is a device, not a file");
        assert_eq!(error("tty"), "it is a device, not a file");
        assert_eq!(error("pipe"), "it is a pipe, not a file");
        assert_eq!(error("socket"), "it is a socket, not a file");
        assert_eq!(bytes(folder.path(), 9).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert!(bytes(&at("loop"), 9).is_err());
        fs::write(at("file"), [0xff; 4]).unwrap();
        assert!(text(&at("file"), 9).unwrap_err().to_string().starts_with("it is not a text"));
    }

    #[test]
    fn a_pipe_that_was_inherited_is_waited_for() {
        use std::{io::Write as _, os::fd::AsRawFd as _};
        let (reads, mut writes) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reads.as_raw_fd());
        let mut file = open_or_inherited(Path::new(&path)).unwrap();
        let writer = std::thread::spawn(move || writes.write_all(b"late").unwrap());
        let mut found = Vec::new();
        file.read_to_end(&mut found).unwrap();
        writer.join().unwrap();
        assert_eq!(found, b"late");
        assert!(open(Path::new(&path)).is_err());
    }
}
