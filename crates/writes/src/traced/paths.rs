//! Paths as the command says them, followed link by link as the kernel would (path_resolution(7)), through the layer
//! and the disk.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Component, Path, PathBuf},
};

use nix::{errno::Errno, unistd::Pid};

use super::{
    place::{Found, Place, errno},
    view::View,
};

/// Links are followed so often in one path, as the kernel does.
const LINKS: usize = 40;

impl View {
    /// Follows `path`, said by `task`, from the folder `from`; the last link only if `follow`.
    pub(super) fn resolve(
        &mut self,
        task: Pid,
        from: &Path,
        path: &Path,
        follow: bool,
    ) -> Result<Found, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::ENOENT);
        }
        let meant = self.meant(path);
        let mut todo: Vec<OsString> = Vec::new();
        let is_folder_meant = path.as_os_str().as_bytes().ends_with(b"/")
            || path.as_os_str().as_bytes().ends_with(b"/.");
        push_all(&mut todo, &meant);
        let mut at = if path.is_absolute() { PathBuf::from("/") } else { from.to_owned() };
        let mut place = self.place_of(&at);
        let mut meta: Option<Metadata> = None;
        let mut n_links = 0;
        let mut descriptor = None;
        let mut is_natural = meant == path;
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.pop();
                place = self.place_of(&at);
                meta = None;
                continue;
            }
            let is_last = todo.is_empty();
            let mut name = name;
            if at == Path::new("/proc") && (name == "self" || name == "thread-self") {
                name = task.to_string().into();
            }
            at.push(&name);
            place = self.child(&place, &at, &name);
            if !is_last && matches!(&place, Place::Theirs(it) if self.plain.contains(it)) {
                continue;
            }
            let found = match fs::symlink_metadata(place.path()) {
                Ok(it) => it,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && is_last => {
                    meta = None;
                    return Ok(Found { path: at, place, meta, descriptor, is_natural });
                }
                Err(error) => return Err(errno(&error)),
            };
            let follows = found.is_symlink() && (!is_last || follow || is_folder_meant);
            if follows {
                n_links += 1;
                if LINKS < n_links {
                    return Err(Errno::ELOOP);
                }
                let target = fs::read_link(place.path()).map_err(|it| errno(&it))?;
                let is_of_a_process = at.starts_with("/proc") && matches!(place, Place::Through(_));
                descriptor = None;
                is_natural &= !matches!(place, Place::Ours(_));
                if is_of_a_process {
                    if is_last {
                        descriptor = descriptor_named(&at);
                    }
                    // A pipe, or something that has no name any more: only the kernel can go there.
                    if !target.is_absolute() || fs::symlink_metadata(&target).is_err() {
                        if is_relative_link(&target) {
                            at.pop();
                            place = self.place_of(&at);
                            push_all(&mut todo, &target);
                            continue;
                        }
                        let rest: PathBuf = todo.iter().rev().collect();
                        if !rest.as_os_str().is_empty() {
                            at.push(rest);
                        }
                        let place = Place::Through(at.clone());
                        let meta = fs::metadata(&at).ok();
                        return Ok(Found { path: at, place, meta, descriptor, is_natural: true });
                    }
                    push_all(&mut todo, &self.named(&target));
                    at = PathBuf::from("/");
                } else {
                    push_all(&mut todo, &target);
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    } else {
                        at.pop();
                    }
                }
                place = self.place_of(&at);
                meta = None;
                continue;
            }
            if !is_last && !found.is_dir() {
                return Err(Errno::ENOTDIR);
            }
            if let (Place::Theirs(it), true) = (&place, found.is_dir()) {
                self.plain.insert(it.clone());
            }
            meta = Some(found);
        }
        if meta.is_none() {
            meta = Some(fs::symlink_metadata(place.path()).map_err(|it| errno(&it))?);
        }
        if is_folder_meant && !meta.as_ref().is_some_and(Metadata::is_dir) {
            return Err(Errno::ENOTDIR);
        }
        let theirs = match (&meta, &place) {
            (Some(it), Place::Theirs(_)) if it.is_file() && 1 < it.nlink() => Some(it),
            _ => None,
        };
        if let Some(ours) = theirs.and_then(|it| self.copied_by_another_name(&at, it)) {
            meta = fs::symlink_metadata(&ours).ok();
            place = Place::Ours(ours);
        }
        is_natural &= match &place {
            Place::Ours(_) => false,
            Place::Theirs(it) | Place::Through(it) => *it == at,
        };
        Ok(Found { path: at, place, meta, descriptor, is_natural })
    }
}

fn push_all(todo: &mut Vec<OsString>, path: &Path) {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let names: Vec<OsString> = names.collect();
    todo.extend(names.into_iter().rev());
}

/// `/proc/123/fd/4` and `/proc/123/task/124/fd/4`.
fn descriptor_named(path: &Path) -> Option<(Pid, i32)> {
    let words: Vec<&str> = path.iter().filter_map(OsStr::to_str).collect();
    let number = match words[..] {
        ["/", "proc", pid, .., "fd", number] => Some((pid.parse().ok()?, number.parse().ok()?)),
        _ => None,
    }?;
    Some((Pid::from_raw(number.0), number.1))
}

/// `self` and `mounts` are links as others are; `pipe:[17]` and `anon_inode:[eventfd]` are not.
fn is_relative_link(target: &Path) -> bool {
    let bytes = target.as_os_str().as_bytes();
    !target.is_absolute() && !bytes.contains(&b':') && !bytes.ends_with(b"(deleted)")
}
