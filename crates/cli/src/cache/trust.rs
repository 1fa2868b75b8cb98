//! Whether what we make in a folder stays what it is: nobody else may put something in its place, or in that of a folder on the way.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid};

use crate::files::reason::reason;

const STICKY: u32 = 0o1000;
const BY_GROUP: u32 = 0o020;
const BY_ALL: u32 = 0o002;
/// What the kernel shows for an owner that a container's user namespace does not have.
const NOBODY_KNOWN: u32 = 65_534;

/// Whether every part of the path `folder` belongs to us or to root, and nobody else may write there. In a sticky folder such as `/tmp`
/// others may write: what is ours in it they can neither remove nor rename. If not: which part, and why.
pub(super) fn check(folder: &Path) -> Result<(), String> {
    let mut at = PathBuf::new();
    for part in folder.components() {
        at.push(part);
        // A link belongs to somebody, too; where it leads is looked at below.
        if matches!(part, Component::Normal(_)) && is_link(&at)? {
            owned(&at, &meta(&at, true)?)?;
        }
    }
    let real = fs::canonicalize(folder).map_err(|error| reason(&error))?;
    for folder in real.ancestors() {
        let meta = meta(folder, false)?;
        owned(folder, &meta)?;
        if meta.mode() & STICKY == 0 && writable_by_others(&meta) {
            let (shown, who) = (folder.display(), who(&meta));
            return Err(format!("{who} may write to {shown}, and could replace a folder in it"));
        }
    }
    Ok(())
}

fn is_link(path: &Path) -> Result<bool, String> {
    Ok(meta(path, true)?.is_symlink())
}

fn meta(path: &Path, of_link: bool) -> Result<fs::Metadata, String> {
    let found = if of_link { fs::symlink_metadata(path) } else { fs::metadata(path) };
    found.map_err(|error| format!("{}: {}", path.display(), reason(&error)))
}

/// Whether it is ours or root's.
fn owned(path: &Path, meta: &fs::Metadata) -> Result<(), String> {
    let owner = meta.uid();
    let is_root = owner == 0 || owner == NOBODY_KNOWN && !knows_all_users();
    if owner == geteuid().as_raw() || is_root {
        return Ok(());
    }
    let name = User::from_uid(Uid::from_raw(owner)).ok().flatten().map(|it| it.name);
    let name = name.unwrap_or_else(|| format!("user {owner}"));
    Err(format!("{} belongs to another user ({name})", path.display()))
}

/// Whether anybody but us and root may write there.
fn writable_by_others(meta: &fs::Metadata) -> bool {
    let by_group = meta.mode() & BY_GROUP != 0 && !is_private(meta.gid());
    by_group || meta.mode() & BY_ALL != 0
}

fn who(meta: &fs::Metadata) -> &'static str {
    if meta.mode() & BY_ALL == 0 { "its group" } else { "everybody" }
}

/// Whether a group has nobody but us or root in it: root's, and the one that many systems make for each user, by their name.
fn is_private(group: u32) -> bool {
    if group == 0 {
        return true;
    }
    let own = User::from_uid(geteuid()).ok().flatten();
    let (Some(own), Ok(Some(found))) = (own, Group::from_gid(Gid::from_raw(group))) else {
        return false;
    };
    getegid().as_raw() == group
        && found.name == own.name
        && found.mem.iter().all(|it| *it == own.name)
}

/// Whether every user of the machine has a number here: not so in most containers' user namespaces.
fn knows_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn who_may_write_on_the_way_could_replace_what_follows() {
        let place = tempfile::tempdir().unwrap();
        let (way, cache) = (place.path().join("way"), place.path().join("way/cache"));
        fs::create_dir_all(&cache).unwrap();
        mode(&cache, 0o700);
        mode(&way, 0o755);
        assert_eq!(check(&cache), Ok(()), "below a sticky folder");
        mode(&way, 0o777);
        let why = check(&cache).unwrap_err();
        assert!(
            why.contains("everybody may write to ") && why.contains("/way, and could replace"),
            "{why}"
        );
        mode(&way, 0o1777);
        assert_eq!(check(&cache), Ok(()), "it is ours there");
        mode(&cache, 0o1777);
        assert_eq!(check(&cache), Ok(()), "and so is what is ours in it");
        mode(&cache, 0o777);
        assert!(check(&cache).unwrap_err().contains("way/cache, and could replace a folder"));
        mode(&cache, 0o700);
        symlink(&cache, place.path().join("link")).unwrap();
        assert_eq!(check(&place.path().join("link")), Ok(()));
        mode(&way, 0o777);
        assert!(check(&place.path().join("link")).is_err(), "where a link leads is looked at");
    }

    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        let place = tempfile::tempdir().unwrap();
        let cache = place.path().join("way/cache");
        fs::create_dir_all(&cache).unwrap();
        // Only root may give a folder away.
        let other = |path: &Path| std::os::unix::fs::chown(path, Some(4711), None);
        if other(&cache).is_err() {
            return;
        }
        assert!(
            check(&cache).unwrap_err().ends_with("way/cache belongs to another user (user 4711)")
        );
        std::os::unix::fs::chown(&cache, Some(0), None).unwrap();
        other(&place.path().join("way")).unwrap();
        assert!(check(&cache).unwrap_err().ends_with("/way belongs to another user (user 4711)"));
    }
}
