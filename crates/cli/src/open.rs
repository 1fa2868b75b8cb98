//! A file that the user names, opened: decompressed if it is compressed, unpacked if it is our recording.
//! What it is, its content says, not its name.
//!
//! Bounded whatever the file claims: decompression stops at [`MOST`] bytes, and at [`RATIO`] times the
//! size of the file where that is less.

use std::{
    fs,
    io::{self, Cursor, Read},
    path::Path,
};

use anyhow::Context as _;

use crate::cache::reason;

/// What decompression may make of one file, at most.
const MOST: u64 = 16 << 30;
/// And for each byte of the file; snapshots shrink to a thirtieth, logs to a hundredth.
const RATIO: u64 = 1_000;
/// A small file may grow to this.
const SMALL: u64 = 64 << 20;

/// What was in a file.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Bytes of whatever kind, decompressed.
    Bytes(Vec<u8>),
    /// The processes of a recording of ours, by process id.
    Recording(Vec<Process>),
}

/// What one process left.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) notes: Vec<u8>,
    pub(crate) snapshot: Option<Vec<u8>>,
    pub(crate) phantom_log: Option<Vec<u8>>,
}

/// Reads `path`; `-` is standard input.
pub(crate) fn read(path: &Path) -> anyhow::Result<Opened> {
    let shown = path.display();
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MOST).read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    let bytes =
        bytes.map_err(|error| anyhow::anyhow!("cannot read {shown}: {}", reason(&error)))?;
    of_bytes(bytes, 0).with_context(|| format!("cannot read {shown}"))
}

/// What `bytes` are; compression in compression goes a few levels deep.
fn of_bytes(bytes: Vec<u8>, depth: u32) -> anyhow::Result<Opened> {
    let limit = (bytes.len() as u64).saturating_mul(RATIO).clamp(SMALL, MOST);
    let decompressed = match bytes.as_slice() {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            // The dictionary is in the header, so it can claim anything.
            let reader = lzma_rust2::XzReader::new_mem_limit(Cursor::new(&bytes), true, 1 << 20);
            bounded(reader, limit)?
        }
        [0x1f, 0x8b, ..] => bounded(flate2::read::MultiGzDecoder::new(Cursor::new(&bytes)), limit)?,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let reader = ruzstd::decoding::StreamingDecoder::new(Cursor::new(&bytes));
            bounded(reader.map_err(|error| anyhow::anyhow!("broken zstd: {error}"))?, limit)?
        }
        [b'P', b'K', 3, 4, ..] => return unzip(&bytes, limit),
        _ => return Ok(Opened::Bytes(bytes)),
    };
    anyhow::ensure!(depth < 4, "compressed more than four times over");
    of_bytes(decompressed, depth + 1)
}

/// Everything that `reader` gives, up to `limit`. What a broken end leaves is kept.
fn bounded(reader: impl Read, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut res = Vec::new();
    let result = reader.take(limit + 1).read_to_end(&mut res);
    anyhow::ensure!(
        res.len() as u64 <= limit,
        "it decompresses to more than {limit} bytes, which is out of all proportion"
    );
    match result {
        Err(error) if res.is_empty() => {
            Err(anyhow::anyhow!("it is compressed, and broken: {error}"))
        }
        _ => Ok(res),
    }
}

/// The members of a recording (docs/recording-format.md), or the one file in an ordinary zip.
fn unzip(bytes: &[u8], limit: u64) -> anyhow::Result<Opened> {
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).context("a zip file, and broken")?;
    let mut processes: Vec<Process> = Vec::new();
    let mut others = Vec::new();
    let mut left = limit;
    for index in 0..zip.len() {
        let member = zip.by_index(index).context("a zip file, and broken")?;
        let name = member.name().context("a zip file, and broken")?.into_owned();
        if !member.is_file() {
            continue;
        }
        let bytes = bounded(member, left).with_context(|| format!("its member {name}"))?;
        left = left.saturating_sub(bytes.len() as u64);
        let of_process = name.strip_prefix("process-").and_then(|it| it.split_once('/'));
        let Some((pid, file)) = of_process.and_then(|(pid, file)| Some((pid.parse().ok()?, file)))
        else {
            others.push((name, bytes));
            continue;
        };
        let at = match processes.iter().position(|it| it.pid == pid) {
            Some(at) => at,
            None => {
                processes.push(Process { pid, ..Process::default() });
                processes.len() - 1
            }
        };
        let process = &mut processes[at];
        match file {
            "agent.jsonl" => process.notes = bytes,
            "snapshot.pickle" => process.snapshot = Some(bytes),
            "phantom.jsonl" => process.phantom_log = Some(bytes),
            _ => {}
        }
    }
    processes.sort_by_key(|it| it.pid);
    if !processes.is_empty() {
        return Ok(Opened::Recording(processes));
    }
    let is_manifest = |name: &str| name == "manifest.json" || name == "phantom.conf";
    anyhow::ensure!(
        !others.iter().any(|(name, _)| is_manifest(name)),
        "a recording in which no process left anything"
    );
    // What `torch.save` writes is a zip whose objects are in `data.pkl`.
    if let Some(at) = others.iter().position(|(name, _)| name.ends_with("/data.pkl")) {
        return Ok(Opened::Bytes(others.swap_remove(at).1));
    }
    match others.pop() {
        Some((_, bytes)) if others.is_empty() => Ok(Opened::Bytes(bytes)),
        _ => anyhow::bail!(
            "a zip file that is no recording of ours; unpack it and name the file in it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_bomb_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..100 {
            encoder.write_all(&vec![0; 1 << 20]).unwrap();
        }
        let bytes = encoder.finish().unwrap();
        let error = of_bytes(bytes[..].to_vec(), 0).unwrap_err().to_string();
        assert!(error.contains("out of all proportion"), "{error}");
    }

    #[test]
    fn gzip_in_gzip_opens() {
        let pack = |bytes: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let Opened::Bytes(bytes) = of_bytes(pack(&pack(b"CUDA")), 0).unwrap() else { panic!() };
        assert_eq!(bytes, b"CUDA");
    }
}
