//! What was written, read from complete folders: every name in them is compared with the disk's. And its way from the
//! tracer to its parent.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use super::view::View;
use crate::plan::SHARED_MEMORY;
use crate::written::{Kind, Written, of_file};

impl View {
    /// Everything that was written, compared with the disk.
    pub(super) fn written(&self) -> Vec<Written> {
        let mut res = Vec::new();
        for top in ["/", SHARED_MEMORY] {
            if self.is_complete(top) {
                self.compare(Path::new(top), &mut res);
            }
        }
        res.sort();
        res
    }

    /// Whether a folder was made because something that earlier runs downloaded is in it.
    fn is_made_to_show(&self, folder: &Path) -> bool {
        let first = self.shown.range(folder.to_owned()..).next();
        first.is_some_and(|it| it.starts_with(folder))
    }

    fn compare(&self, folder: &Path, res: &mut Vec<Written>) {
        let ours = self.place_of(folder);
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(ours.path()).into_iter().flatten().flatten() {
            names.insert(entry.file_name());
            let path = folder.join(entry.file_name());
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            let before = fs::symlink_metadata(&path).ok();
            if let Some(theirs) = self.stands_for.get(&path) {
                if *theirs != path && !self.shown.contains(&path) {
                    let bytes = fs::symlink_metadata(theirs).map(|it| it.len()).unwrap_or_default();
                    let lies_at = Some(theirs.clone());
                    res.push(Written { path, kind: Kind::Renamed, bytes, lies_at });
                }
            } else if meta.is_dir() {
                if !before.is_some_and(|it| it.is_dir()) && !self.is_made_to_show(&path) {
                    let (path, lies_at) = (path.clone(), Some(entry.path()));
                    res.push(Written { path, kind: Kind::Created, bytes: 0, lies_at });
                }
                self.compare(&path, res);
            } else {
                res.extend(of_file(path, entry.path(), &meta, before.as_ref()));
            }
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !names.contains(&entry.file_name()) {
                let path = entry.path();
                res.push(Written { path, kind: Kind::Deleted, bytes: 0, lies_at: None });
            }
        }
    }
}

/// `kind`, bytes, path and where it lies, each ended by a zero byte, as no path holds one.
pub(super) fn write_report(path: &Path, written: &[Written]) -> io::Result<()> {
    let mut res = Vec::new();
    for Written { path, kind, bytes, lies_at } in written {
        let lies_at = lies_at.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes();
        let bytes = bytes.to_string();
        let words =
            [kind.word().as_bytes(), bytes.as_bytes(), path.as_os_str().as_bytes(), lies_at];
        for word in words {
            res.extend_from_slice(word);
            res.push(0);
        }
    }
    fs::write(path, res)
}

pub(super) fn read_report(path: &Path) -> io::Result<Vec<Written>> {
    let bytes = fs::read(path)?;
    let words: Vec<&[u8]> = bytes.split(|it| *it == 0).collect();
    let as_path = |it: &[u8]| PathBuf::from(OsString::from_vec(it.to_vec()));
    let kinds = [Kind::Created, Kind::Changed, Kind::Deleted, Kind::Renamed];
    let of_words = |words: &[&[u8]]| {
        let [kind, bytes, path, lies_at] = words else { return None };
        Some(Written {
            path: as_path(path),
            kind: kinds.into_iter().find(|it| it.word().as_bytes() == *kind)?,
            bytes: std::str::from_utf8(bytes).ok()?.parse().ok()?,
            lies_at: (!lies_at.is_empty()).then(|| as_path(lies_at)),
        })
    };
    Ok(words.chunks(4).filter_map(of_words).collect())
}
