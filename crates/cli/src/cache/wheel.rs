//! The Python package, which this binary carries, as a wheel that pip installs: for who has the program and no checkout.

use std::{
    io::{Cursor, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::cache::bundle::{Bundle, File, PACKAGE};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Puts the wheel into the cache, and says where it is.
pub(crate) fn wheel(bundle: &Bundle) -> anyhow::Result<PathBuf> {
    let name = format!("plimsoll_gpu-{VERSION}-py3-none-any.whl");
    bundle.put(&name, &bytes()?).with_context(|| format!("cannot write {name}"))
}

/// The same each time: no time of day is in it.
fn bytes() -> anyhow::Result<Vec<u8>> {
    let about = format!("plimsoll_gpu-{VERSION}.dist-info");
    let metadata = format!(
        "Metadata-Version: 2.4\nName: plimsoll-gpu\nVersion: {VERSION}\n\
         Summary: {}\nRequires-Python: >=3.10\nLicense-Expression: {}\n",
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_LICENSE"),
    );
    let kind =
        "Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let entries = "[pytest11]\nplimsoll = plimsoll.pytest_plugin\n";
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut record = String::new();
    let mut add = |name: &str, bytes: &[u8]| -> anyhow::Result<()> {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        record += &format!("{name},sha256={hash},{}\n", bytes.len());
        zip.start_file(name, options)?;
        zip.write_all(bytes)?;
        Ok(())
    };
    for File { path, bytes } in PACKAGE {
        add(path, bytes)?;
    }
    add(&format!("{about}/METADATA"), metadata.as_bytes())?;
    add(&format!("{about}/WHEEL"), kind.as_bytes())?;
    add(&format!("{about}/entry_points.txt"), entries.as_bytes())?;
    let list = format!("{about}/RECORD");
    record += &format!("{list},,\n");
    zip.start_file(list, options)?;
    zip.write_all(record.as_bytes())?;
    Ok(zip.finish()?.into_inner())
}
