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

/// What `pyproject.toml` says of the package, for pip.
const METADATA: &str = concat!(
    "Metadata-Version: 2.4\nName: plimsoll-gpu\nVersion: ",
    env!("CARGO_PKG_VERSION"),
    "\nSummary: ",
    env!("CARGO_PKG_DESCRIPTION"),
    "\nRequires-Python: >=3.10\nLicense-Expression: ",
    env!("CARGO_PKG_LICENSE"),
    "\n"
);
const ENTRY_POINTS: &str = "[pytest11]\nplimsoll = plimsoll.pytest_plugin\n";

/// The same each time: no time of day is in it.
fn bytes() -> anyhow::Result<Vec<u8>> {
    let about = format!("plimsoll_gpu-{VERSION}.dist-info");
    let kind =
        "Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
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
    add(&format!("{about}/METADATA"), METADATA.as_bytes())?;
    add(&format!("{about}/WHEEL"), kind.as_bytes())?;
    add(&format!("{about}/entry_points.txt"), ENTRY_POINTS.as_bytes())?;
    let list = format!("{about}/RECORD");
    record += &format!("{list},,\n");
    zip.start_file(list, options)?;
    zip.write_all(record.as_bytes())?;
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_wheel_says_of_the_package_what_its_build_says() {
        let text = include_str!("../../../../pyproject.toml");
        let all: toml::Table = text.parse().unwrap();
        let project = all["project"].as_table().unwrap();
        // The build takes it from the manifest of this crate.
        assert_eq!(project["dynamic"].as_array().unwrap(), &["version".into()]);
        assert_eq!(all["tool"]["maturin"]["manifest-path"].as_str(), Some("crates/cli/Cargo.toml"));
        assert!(project["dependencies"].as_array().unwrap().is_empty(), "the wheel has none");
        let said = |name: &str| {
            let mut lines = METADATA.lines().filter_map(|it| it.split_once(": "));
            lines.find(|it| it.0 == name).map(|it| it.1)
        };
        assert_eq!(said("Version"), Some(VERSION));
        for (ours, theirs) in [
            ("Name", "name"),
            ("Summary", "description"),
            ("Requires-Python", "requires-python"),
            ("License-Expression", "license"),
        ] {
            assert_eq!(said(ours), project[theirs].as_str(), "{theirs}");
        }
        let mut entries = String::new();
        for (group, all) in project["entry-points"].as_table().unwrap() {
            writeln!(entries, "[{group}]").unwrap();
            for (name, it) in all.as_table().unwrap() {
                writeln!(entries, "{name} = {}", it.as_str().unwrap()).unwrap();
            }
        }
        assert_eq!(ENTRY_POINTS, entries);
    }
}
