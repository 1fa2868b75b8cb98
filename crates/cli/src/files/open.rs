//! A file that somebody hands us: told by how it begins, whatever its name, and unpacked as it is read.
//! Unpacking is bounded: a small file never becomes more than a stated multiple of itself.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::{self, BufReader, Cursor, Read},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    rc::Rc,
};

use anyhow::Context as _;
use plimsoll_core::{
    printable::printable,
    recording::contract::{ProcessFile, process_of},
    sources::{log::Log, snapshot},
};

use crate::{
    files::{
        bounded_file,
        process_folder::ProcessFolder,
        reason::{of_windows, reason},
    },
    output,
};

/// Snapshots shrink to a twentieth; what grows more than this is no snapshot.
const RATIO: u64 = 200;
/// What every file may grow to, however small it is.
const FREE: u64 = 64 << 20;
/// What no file may grow to.
const MOST: u64 = 32 << 30;
/// What a recording of ours may have as it is packed.
const MOST_PACKED: u64 = 2 << 30;
/// Processes that a recording may have.
const MOST_PROCESSES: usize = 4096;
/// What a log may have. One that has no end, as `yes` writes it, is left there.
const MOST_TEXT: u64 = 4 << 30;
/// What a decoder may hold of the past: xz -9 needs 64 MiB, zstd --long=27 128 MiB.
const WINDOW: u64 = 192 << 20;

/// What was in it.
pub(crate) enum Opened {
    /// One file, unpacked: a snapshot, a log, whatever it is.
    File(Stream),
    /// What `plimsoll predict --record` wrote: what each process left, by process id.
    Recording(Vec<ProcessFolder>),
}

/// A file as it arrives, unpacked. It need not fit into memory; only how it begins is there already.
pub(crate) struct Stream {
    head: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Stream {
    /// How it begins; all of it when it is short.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// From its beginning on.
    pub(crate) fn reader(self) -> impl Read {
        Cursor::new(self.head).chain(self.rest)
    }

    /// A log, to its end.
    pub(crate) fn log(self) -> io::Result<Log> {
        self.log_of_at_most(MOST_TEXT)
    }

    fn log_of_at_most(self, most: u64) -> io::Result<Log> {
        let mut reader = self.reader().take(most);
        let res = Log::read_from(&mut reader)?;
        if reader.limit() == 0 {
            return Err(io::Error::other(format!(
                "it is a log of more than {} MiB, the largest that plimsoll reads; give the part around the error",
                most >> 20
            )));
        }
        Ok(res)
    }
}

/// Opens `path` (`-` is standard input), and unpacks xz, zstd and gzip and our own recordings.
pub(crate) fn read(path: &Path) -> anyhow::Result<Opened> {
    let is_stdin = path == Path::new("-");
    let shown = if is_stdin { "standard input".into() } else { path.display().to_string() };
    let source: Box<dyn Read> = if is_stdin {
        standard_input()
    } else {
        let file = bounded_file::open_or_inherited(path);
        let file = file.map_err(|it| {
            anyhow::anyhow!("cannot read {shown}: {}{}", reason(&it), of_windows(path))
        })?;
        Box::new(file)
    };
    unpack(source).with_context(|| format!("cannot unpack {shown}"))
}

/// Standard input. A text that comes through a pipe, from a program that is running, goes on to standard error as it comes: whoever
/// pipes it here still sees it.
fn standard_input() -> Box<dyn Read> {
    let is_pipe = fs::metadata("/dev/stdin").is_ok_and(|it| it.file_type().is_fifo());
    if is_pipe {
        Box::new(Passing { source: io::stdin(), is_text: None })
    } else {
        Box::new(io::stdin())
    }
}

/// Whether somebody hands us something: a pipe, or a file that is not empty.
pub(crate) fn has_standard_input() -> bool {
    fs::metadata("/dev/stdin")
        .is_ok_and(|it| it.file_type().is_fifo() || it.is_file() && 0 < it.len())
}

/// Passes a text on to standard error.
struct Passing<R> {
    source: R,
    is_text: Option<bool>,
}

impl<R: Read> Read for Passing<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(room)?;
        let begun = &room[..n];
        // A snapshot, an archive, a trace.
        let is_text = *self.is_text.get_or_insert_with(|| {
            let is_json = begun.starts_with(b"{")
                || begun.starts_with(b"[")
                    && begun.trim_ascii_start()[1..].trim_ascii_start().starts_with(b"{");
            let is_binary =
                begun.first().is_some_and(|it| matches!(it, 0x80 | 0x1f | 0x28 | 0xfd..=0xff));
            !is_json && !is_binary && !begun.starts_with(b"PK\x03\x04")
        });
        if is_text {
            output::of_script(begun);
        }
        Ok(n)
    }
}

fn unpack(source: impl Read + 'static) -> anyhow::Result<Opened> {
    let taken = Rc::new(Cell::new(0));
    let mut source = Counted { source, taken: Rc::clone(&taken) };
    let mut start = Vec::new();
    source.by_ref().take(6).read_to_end(&mut start)?;
    let source = Cursor::new(start.clone()).chain(source);
    let packed = |source| BufReader::with_capacity(128 << 10, source);
    let bounded = |what, reader: Box<dyn Read>| Bounded { what, reader, taken, given: 0 };
    let mut unpacked: Box<dyn Read> = if start.starts_with(b"\xfd7zXZ\0") {
        let kib = u32::try_from(WINDOW >> 10).unwrap_or(u32::MAX);
        let decoder = lzma_rust2::XzReader::new_mem_limit(packed(source), true, kib);
        Box::new(bounded("xz", Box::new(decoder)))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder =
            ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed(source), WINDOW)
                .map_err(|error| anyhow::anyhow!("the zstd data is damaged: {error}"))?;
        Box::new(bounded("zstd", Box::new(decoder)))
    } else if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(bounded("gzip", Box::new(flate2::read::MultiGzDecoder::new(packed(source)))))
    } else if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        let mut bytes = Vec::new();
        source.take(MOST_PACKED + 1).read_to_end(&mut bytes)?;
        anyhow::ensure!(
            bytes.len() as u64 <= MOST_PACKED,
            "it is a zip file of more than {} GiB, larger than any recording",
            MOST_PACKED >> 30
        );
        return recording(Cursor::new(&bytes), limit(bytes.len() as u64));
    } else {
        // Who reads it asks for much at once.
        Box::new(source)
    };
    let mut head = Vec::new();
    let begun = unpacked.by_ref().take(snapshot::HEAD as u64).read_to_end(&mut head);
    match begun {
        // What was unpacked before the damage may say something.
        Err(error) if head.is_empty() => return Err(error.into()),
        Err(error) => {
            let rest = Box::new(Failing(error.to_string()));
            return Ok(Opened::File(Stream { head, rest }));
        }
        Ok(_) => {}
    }
    Ok(Opened::File(Stream { head, rest: unpacked }))
}

fn limit(packed: u64) -> u64 {
    packed.saturating_mul(RATIO).clamp(FREE, MOST)
}

/// Counts what was taken of a packed file.
struct Counted<R> {
    source: R,
    taken: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(room)?;
        self.taken.set(self.taken.get() + n as u64);
        Ok(n)
    }
}

/// What a decoder makes of what was taken, never out of proportion to it.
struct Bounded {
    what: &'static str,
    reader: Box<dyn Read>,
    taken: Rc<Cell<u64>>,
    given: u64,
}

impl Read for Bounded {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(room).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ => io::Error::other(format!("the {} data is damaged: {error}", self.what)),
        })?;
        self.given += n as u64;
        if limit(self.taken.get()) < self.given {
            return Err(io::Error::other(TOO_MUCH));
        }
        Ok(n)
    }
}

const TOO_MUCH: &str = "it unpacks to more than 200 times its size, and no recording does; unpack it yourself if you trust it";

/// What follows the last bytes that could be unpacked.
struct Failing(String);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other(self.0.clone()))
    }
}

fn bounded(decoder: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut res = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut res)?;
    if limit < res.len() as u64 {
        return Err(io::Error::other(TOO_MUCH));
    }
    Ok(res)
}

/// The members of a recording; others are ignored.
fn recording(source: Cursor<&Vec<u8>>, limit: u64) -> anyhow::Result<Opened> {
    let mut zip = zip::ZipArchive::new(source).context("the zip file is damaged")?;
    let mut left = limit;
    let mut processes: BTreeMap<u32, ProcessFolder> = BTreeMap::new();
    for index in 0..zip.len() {
        let member = zip.by_index(index).context("the zip file is damaged")?;
        let Some((pid, name)) = member.name().ok().and_then(|it| member_of(&it)) else { continue };
        let bytes = bounded(member, left).context("the zip file is damaged")?;
        left -= bytes.len() as u64;
        if MOST_PROCESSES <= processes.len() && !processes.contains_key(&pid) {
            anyhow::bail!(
                "this zip file has more than {MOST_PROCESSES} processes, and no recording has"
            );
        }
        let process = processes.entry(pid).or_insert_with(|| ProcessFolder {
            pid,
            notes: Vec::new(),
            snapshot: None,
            phantom_log: None,
        });
        match name {
            ProcessFile::Notes => process.notes = bytes,
            ProcessFile::Snapshot => process.snapshot = Some(bytes),
            ProcessFile::PhantomLog => process.phantom_log = Some(bytes),
        }
    }
    if processes.is_empty() {
        anyhow::bail!(no_recording(&zip));
    }
    Ok(Opened::Recording(processes.into_values().collect()))
}

/// Files of an archive that are named.
const NAMED: usize = 3;

/// An archive without anything that a process left, and what it has.
fn no_recording(zip: &zip::ZipArchive<Cursor<&Vec<u8>>>) -> String {
    let names = zip.file_names().filter_map(Result::ok).filter(|name| !name.ends_with('/'));
    let names: Vec<String> = names.map(|name| printable(&name).into_owned()).collect();
    let has = match names.get(NAMED..) {
        _ if names.is_empty() => "it is empty".to_owned(),
        Some(more @ [_, ..]) => {
            format!("it has {} and {} more", names[..NAMED].join(", "), more.len())
        }
        _ => format!("it has {}", names.join(", ")),
    };
    format!(
        "it is a zip archive without a recording of plimsoll: {has}. `plimsoll predict --record run.zip` writes a recording; unpack other archives and name the file"
    )
}

/// The process and the file that a member of the archive is.
fn member_of(name: &str) -> Option<(u32, ProcessFile)> {
    let (folder, file) = name.split_once('/')?;
    Some((process_of(folder)?, ProcessFile::of_name(file)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn whole(packed: &[u8]) -> Result<Vec<u8>, String> {
        match unpack(Cursor::new(packed.to_vec())) {
            Ok(Opened::File(stream)) => {
                let mut res = Vec::new();
                let read = stream.reader().read_to_end(&mut res);
                read.map(|_| res).map_err(|it| it.to_string())
            }
            Ok(Opened::Recording(_)) => panic!("one file"),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    #[test]
    fn unpacks_by_how_it_begins() {
        assert_eq!(whole(&gzip(b"a snapshot")).unwrap(), b"a snapshot");
        for plain in [&b"plain"[..], b"", b"P", &[7; 200_000]] {
            assert_eq!(whole(plain).unwrap(), plain);
        }
    }

    #[test]
    fn a_small_file_does_not_become_a_huge_one() {
        // Members of one gzip file follow each other.
        let bomb = gzip(&vec![0; 8 << 20]).repeat(10);
        assert!(bomb.len() < 100_000);
        let error = whole(&bomb).unwrap_err();
        assert!(error.contains("more than 200 times"), "{error}");
    }

    #[test]
    fn what_has_no_end_is_left() {
        let Ok(Opened::File(stream)) = unpack(io::repeat(b'x')) else { panic!("one file") };
        let error = stream.log_of_at_most(3 << 20).unwrap_err().to_string();
        assert!(error.starts_with("it is a log of more than 3 MiB"), "{error}");
    }

    #[test]
    fn a_recording_has_no_more_processes_than_jobs_have() {
        let zip_of = |count| {
            let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
            let options = zip::write::SimpleFileOptions::default();
            for pid in 1..=count {
                zip.start_file(format!("process-{pid}/agent.jsonl"), options).unwrap();
            }
            zip.finish().unwrap().into_inner()
        };
        let open = |bytes| unpack(Cursor::new(bytes)).map(|_| ()).map_err(|it| it.to_string());
        assert_eq!(open(zip_of(64)), Ok(()));
        let error = open(zip_of(MOST_PROCESSES + 1)).unwrap_err();
        assert!(error.contains("more than 4096 processes"), "{error}");
    }

    #[test]
    fn damage_is_an_error_not_a_panic() {
        for start in [&b"\xfd7zXZ\0"[..], &[0x28, 0xb5, 0x2f, 0xfd], &[0x1f, 0x8b], b"PK\x03\x04"] {
            let mut bytes = start.to_vec();
            bytes.extend([7; 40]);
            assert!(whole(&bytes).is_err());
        }
    }

    #[test]
    fn what_was_unpacked_before_the_damage_is_there() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut packed = gzip(&text);
        packed.truncate(packed.len() / 2);
        let Ok(Opened::File(stream)) = unpack(Cursor::new(packed)) else { panic!("one file") };
        assert_eq!(stream.head(), &text[..snapshot::HEAD]);
        let mut found = Vec::new();
        let error = stream.reader().read_to_end(&mut found).unwrap_err().to_string();
        assert!(error.starts_with("the gzip data is damaged"), "{error}");
        assert!(snapshot::HEAD < found.len() && text.starts_with(&found));
    }
}
