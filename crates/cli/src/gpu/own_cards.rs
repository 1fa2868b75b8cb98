//! The user's own cards: a folder of card files, which `plimsoll calibrate` writes and people may be sent. Every command knows them.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use plimsoll_core::cards::{self, Own};

use crate::{
    contract,
    files::{bounded_file, reason::reason},
    output::say,
};

/// A card has some hundred bytes; a folder of them some cards.
const LARGEST: u64 = 64 << 10;
const MOST: usize = 64;

/// Where they lie: `$PLIMSOLL_CARDS`, or `plimsoll/cards` in the folder for settings. None without a home.
pub(crate) fn folder() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    named(contract::CARDS).or_else(|| {
        let settings = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
        Some(settings.join("plimsoll").join("cards"))
    })
}

/// Has the catalogue take them in. Says which could not be read.
pub(crate) fn take_in() {
    let found = folder().map(|it| files(&it)).unwrap_or_default();
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    for (file, text) in found {
        match text {
            Ok(text) => files.push((file, text)),
            Err(error) => unread.push((file, error)),
        }
    }
    for (file, error) in unread {
        let error = reason(&error);
        say(&format!("skipped the card {file}: {error}"));
    }
    let forgotten = env::var(contract::FORGET_CARDS).unwrap_or_default();
    let forgotten: Vec<String> =
        forgotten.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    if files.is_empty() && forgotten.is_empty() {
        return;
    }
    cards::take_in(Own { files, forgotten });
    for (file, error) in cards::unread() {
        say(&format!("skipped the card {file}: {error}"));
    }
}

fn files(folder: &Path) -> Vec<(String, io::Result<String>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    paths.retain(|it| it.extension().is_some_and(|it| it == "toml"));
    paths.sort();
    let read = |it: &PathBuf| (it.display().to_string(), bounded_file::text(it, LARGEST));
    paths.iter().take(MOST).map(read).collect()
}
