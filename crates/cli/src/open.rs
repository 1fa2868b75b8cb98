//! A file that somebody hands us: read, and unpacked by how it begins, whatever its name. Unpacking is
//! bounded: a small file never becomes more than a stated multiple of itself.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::Path,
};

use anyhow::Context as _;

use crate::cache::{reason, session::ProcessFolder};

/// Snapshots shrink to a twentieth; what grows more than this is no snapshot.
const RATIO: u64 = 200;
/// What every file may grow to, however small it is.
const FREE: u64 = 64 << 20;
/// What no file may grow to.
const MOST: u64 = 32 << 30;
/// What a decoder may hold of the past: xz -9 needs 64 MiB, zstd --long=27 128 MiB.
const WINDOW: u64 = 192 << 20;

/// What was in it.
#[derive(Debug)]
pub(crate) enum Opened {
    /// One file, unpacked: a snapshot, a log, whatever it is.
    File(Vec<u8>),
    /// What `plimsoll predict --record` wrote: what each process left, by process id.
    Recording(Vec<ProcessFolder>),
}

/// Reads `path` (`-` is standard input), and unpacks xz, zstd and gzip and our own recordings.
pub(crate) fn read(path: &Path) -> anyhow::Result<Opened> {
    let shown =
        if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
    let bytes = read_all(path)
        .map_err(|error| anyhow::anyhow!("cannot read {shown}: {}", reason(&error)))?;
    unpack(bytes).with_context(|| format!("cannot unpack {shown}"))
}

fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut res = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().read_to_end(&mut res)?;
    } else {
        File::open(path)?.read_to_end(&mut res)?;
    }
    Ok(res)
}

fn unpack(bytes: Vec<u8>) -> anyhow::Result<Opened> {
    let source = Cursor::new(&bytes);
    let limit = limit(bytes.len());
    let unpacked = if bytes.starts_with(b"\xfd7zXZ\0") {
        let kib = u32::try_from(WINDOW >> 10).unwrap_or(u32::MAX);
        let decoder = lzma_rust2::XzReader::new_mem_limit(BufReader::new(source), true, kib);
        bounded(decoder, limit).context("the xz data is damaged")?
    } else if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(source, WINDOW)
            .map_err(|error| anyhow::anyhow!("the zstd data is damaged: {error}"))?;
        bounded(decoder, limit).context("the zstd data is damaged")?
    } else if bytes.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::read::MultiGzDecoder::new(source);
        bounded(decoder, limit).context("the gzip data is damaged")?
    } else if bytes.starts_with(b"PK\x03\x04") {
        return recording(source, limit);
    } else {
        bytes
    };
    Ok(Opened::File(unpacked))
}

fn limit(packed: usize) -> u64 {
    (packed as u64).saturating_mul(RATIO).clamp(FREE, MOST)
}

fn bounded(decoder: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut res = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut res)?;
    if limit < res.len() as u64 {
        return Err(io::Error::other(format!(
            "it unpacks to more than {RATIO} times its size, which no recording does; unpack it yourself if you trust it"
        )));
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
        let process = processes.entry(pid).or_insert_with(|| ProcessFolder {
            pid,
            notes: Vec::new(),
            snapshot: None,
            phantom_log: None,
        });
        match name {
            Member::Notes => process.notes = bytes,
            Member::Snapshot => process.snapshot = Some(bytes),
            Member::PhantomLog => process.phantom_log = Some(bytes),
        }
    }
    if processes.is_empty() {
        anyhow::bail!("this zip file is no recording of plimsoll: no process left anything in it");
    }
    Ok(Opened::Recording(processes.into_values().collect()))
}

/// The files that a process leaves.
enum Member {
    Notes,
    Snapshot,
    PhantomLog,
}

fn member_of(name: &str) -> Option<(u32, Member)> {
    let (folder, file) = name.split_once('/')?;
    let pid = folder.strip_prefix("process-")?.parse().ok()?;
    let member = match file {
        "agent.jsonl" => Member::Notes,
        "snapshot.pickle" => Member::Snapshot,
        "phantom.jsonl" => Member::PhantomLog,
        _ => return None,
    };
    Some((pid, member))
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

    #[test]
    fn unpacks_by_how_it_begins() {
        let Opened::File(text) = unpack(gzip(b"a snapshot")).unwrap() else { panic!("one file") };
        assert_eq!(text, b"a snapshot");
        let Opened::File(text) = unpack(b"plain".to_vec()).unwrap() else { panic!("one file") };
        assert_eq!(text, b"plain");
    }

    #[test]
    fn a_small_file_does_not_become_a_huge_one() {
        let bomb = gzip(&vec![0; 80 << 20]);
        assert!(bomb.len() < 100_000);
        let error = format!("{:#}", unpack(bomb).unwrap_err());
        assert!(error.contains("more than 200 times"), "{error}");
    }

    #[test]
    fn damage_is_an_error_not_a_panic() {
        for start in [&b"\xfd7zXZ\0"[..], &[0x28, 0xb5, 0x2f, 0xfd], &[0x1f, 0x8b], b"PK\x03\x04"] {
            let mut bytes = start.to_vec();
            bytes.extend([7; 40]);
            assert!(unpack(bytes).is_err());
        }
    }
}
