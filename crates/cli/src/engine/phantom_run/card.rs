//! The card to imitate: by name, from a file, that of this machine, or the largest that there are kernels for.

use std::{ffi::OsString, path::Path};

use anyhow::Context as _;
use plimsoll_core::{
    cards::{self, Card},
    units::Bytes,
};

use crate::{
    cache,
    engine::{
        launch::{self, ScriptCommand},
        phantom_run::here::{self, Here},
        python,
    },
    files::bounded_file,
    gpu::devices,
    options::beside::Beside,
};

/// The card to imitate, and how it was chosen.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) card: Card,
    /// What the report has to say of that; none if it was named.
    pub(crate) how: Option<How>,
}

/// Why a card that nobody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// This machine has one; the sentence says which.
    OfThisMachine(String),
    /// It is the largest, so that the script runs through: whether it fits that one is no answer. The sentence says so.
    Largest(String),
}

/// What the report says of the largest card.
const LARGEST: &str = "no --gpu was given, so plimsoll imitated the largest card that this PyTorch has kernels for. For one card, add --gpu NAME";

/// The card to imitate: by name, from a file, that of this machine, or the largest that the command's torch has kernels for.
pub(crate) fn choice(
    gpu: Option<&str>,
    memory: Option<Bytes>,
    command: &[OsString],
) -> anyhow::Result<Choice> {
    let how = match gpu {
        Some(_) => None,
        None => match here::look() {
            Here::Card(found, how) => {
                let card = card(Some(&found.id), memory, command)?;
                return Ok(Choice { card, how: Some(How::OfThisMachine(how)) });
            }
            Here::Nothing => Some(How::Largest(LARGEST.to_owned())),
            Here::Unknown(name) => Some(How::Largest(format!(
                "{LARGEST}. This machine's GPU, {name}, is not in the catalogue; `plimsoll calibrate` measures it"
            ))),
        },
    };
    Ok(Choice { card: card(gpu, memory, command)?, how })
}

/// Likewise, where only the card matters; without a name it is the largest.
pub(crate) fn card(
    gpu: Option<&str>,
    memory: Option<Bytes>,
    command: &[OsString],
) -> anyhow::Result<Card> {
    let card = match gpu {
        None => {
            let interpreter = ScriptCommand::resolve(command).ok().filter(ScriptCommand::is_python);
            let interpreter = interpreter.map(|it| it.program).or_else(|| launch::python().ok());
            let torch = interpreter.and_then(|it| python::probe(&it, None).ok()?.torch);
            largest_for(torch.as_ref()).clone()
        }
        Some(given) if is_file(given) => {
            let text = bounded_file::text(Path::new(given), bounded_file::WRITTEN_BY_HAND);
            let text = text.map_err(|error| {
                anyhow::anyhow!("cannot read the card {given}: {}", cache::reason(&error))
            })?;
            cards::parse(&text).with_context(|| format!("cannot read the card {given}"))?
        }
        Some(name) => cards::resolve(name)?,
    };
    Ok(match memory {
        None => card,
        Some(total) if total <= card.context => anyhow::bail!(
            "--memory {total} is too small: the CUDA context alone needs {} on {}; use more",
            card.context,
            card.name,
        ),
        Some(total) => card.with_total(total),
    })
}

/// Where a card is: what else is on it, and whose driver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Home {
    beside: Bytes,
    is_windows: bool,
}

impl Home {
    /// Of the card of `choice`, as it was said, or as this machine has it where its own card is imitated.
    pub(crate) fn of(
        choice: &Choice,
        beside: Option<Beside>,
        is_windows: bool,
    ) -> anyhow::Result<Home> {
        let Choice { card, how } = choice;
        let beside = match beside {
            None => Bytes::ZERO,
            Some(Beside::Size(size)) => size,
            Some(Beside::Now) => in_use_now(card)?,
        };
        let is_own = matches!(how, Some(How::OfThisMachine(_)));
        let home = Home { beside, is_windows: is_windows || is_own && is_wsl(Path::new(RELEASE)) };
        if home.card(card.clone()).usable() <= card.context {
            anyhow::bail!(
                "--beside {beside} leaves nothing of the {} of {}: the CUDA context alone needs {}; give less",
                card.total,
                card.name,
                card.context,
            );
        }
        Ok(home)
    }

    /// `card` there.
    pub(crate) fn card(self, card: Card) -> Card {
        let card = card.with_beside(self.beside);
        if self.is_windows { card.on_windows() } else { card }
    }
}

/// What of this machine's GPU is in use now, if `card` is it.
fn in_use_now(card: &Card) -> anyhow::Result<Bytes> {
    let now =
        devices::first().context("--beside now asks this machine's GPU; give a size instead")?;
    if now.name != card.name {
        anyhow::bail!(
            "--beside now asks this machine's GPU, which is {}, not {}; give a size instead",
            now.name,
            card.name,
        );
    }
    Ok(card.total.saturating_sub(now.free))
}

/// Where Linux says which it is.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// Whether this is Linux under Windows, whose kernel says so in the file `release`.
fn is_wsl(release: &Path) -> bool {
    let release = bounded_file::text(release, bounded_file::WRITTEN_BY_HAND);
    release.is_ok_and(|it| it.to_ascii_lowercase().contains("microsoft"))
}

/// `a100-80g/3g.40gb` is a slice of a card, `./a100` a file.
fn is_file(given: &str) -> bool {
    given.ends_with(".toml")
        || (given.contains('/') && Path::new(given).is_file())
        || given.starts_with(['/', '.', '~'])
}

/// The card that lets the most scripts run through, so that there is something to report.
pub(crate) fn largest() -> &'static Card {
    let cards = cards::catalogue().iter().filter(|it| it.usual);
    cards.max_by_key(|it| it.total).expect("the catalogue is not empty")
}

/// The same of those that a torch has kernels for: compilers before CUDA 12.8 know no Blackwell (release notes
/// of CUDA 12.8), and PyTorch's wheels for them hold nothing that a driver could translate.
pub(crate) fn largest_for(torch: Option<&python::Torch>) -> &'static Card {
    const FIRST_WITH_BLACKWELL: (u32, u32) = (12, 8);
    const BLACKWELL: u32 = 10;
    let cuda = torch.and_then(|version| {
        let (major, minor) = version.cuda.as_deref()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    if cuda.is_none_or(|it: (u32, u32)| FIRST_WITH_BLACKWELL <= it) {
        return largest();
    }
    let known =
        cards::catalogue().iter().filter(|it| it.usual && it.compute_capability.0 < BLACKWELL);
    known.max_by_key(|it| it.total).unwrap_or_else(|| largest())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wsl_is_told_by_the_release_of_its_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("osrelease");
        for (release, expected) in [
            ("5.15.167.4-microsoft-standard-WSL2\n", true),
            ("4.4.0-19041-Microsoft\n", true), // WSL 1
            ("6.8.0-48-generic\n", false),
            ("", false),
        ] {
            std::fs::write(&file, release).unwrap();
            assert_eq!(is_wsl(&file), expected, "{release:?}");
        }
        assert!(!is_wsl(&folder.path().join("none")));
    }

    #[test]
    fn without_a_choice_the_card_is_one_that_the_torch_has_kernels_for() {
        let chosen = |cuda: Option<&str>| {
            let torch = python::Torch {
                version: None,
                cuda: cuda.map(str::to_owned),
                path: String::new(),
                is_condas: false,
                support: None,
            };
            largest_for(Some(&torch)).id.as_str()
        };
        assert_eq!(chosen(Some("12.4")), "h200");
        assert_eq!(chosen(Some("12.6")), "h200");
        assert_eq!(chosen(Some("12.8")), "b200");
        assert_eq!(chosen(Some("12.10")), "b200");
        assert_eq!(chosen(Some("13.0")), "b200");
        // What is not known is found out by the run.
        assert_eq!(chosen(None), "b200");
        assert_eq!(chosen(Some("twelve")), "b200");
        assert_eq!(largest_for(None).id, "b200");
    }
}
