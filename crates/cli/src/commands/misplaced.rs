//! Options of ours that stand behind the command, where the script gets them, and may swallow them without a word.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::CommandFactory as _;
use plimsoll_core::cards;

use crate::{engine::launch, files::bounded_file, options::cli::Cli, shell};

/// One sentence if options of `plimsoll SUBCOMMAND` stand behind its command, and the script seems not to know them.
pub(crate) fn remark(subcommand: &str, words: &[OsString]) -> Option<String> {
    let (before, command) = launch::assignments(words);
    let text = command.iter().find_map(|it| text(it));
    let mut ours = Vec::new();
    let mut rest: Vec<OsString> = words.get(..before.len())?.to_vec();
    let mut left = command.iter().peekable();
    while let Some(word) = left.next() {
        let name = word.to_str().and_then(|it| it.strip_prefix("--")).unwrap_or_default();
        let (name, value) = name.split_once('=').map_or((name, None), |it| (it.0, Some(it.1)));
        let next = left.peek().and_then(|it| it.to_str()).filter(|it| !it.starts_with('-'));
        let takes_value = takes_value(subcommand, name);
        let value = value.or(next.filter(|_| takes_value == Some(true)));
        if takes_value.is_none() || !is_meant_for_us(name, value, text.as_deref()) {
            rest.push(word.clone());
            continue;
        }
        ours.push(word.clone());
        if value.is_some() && !word.as_encoded_bytes().contains(&b'=') {
            ours.extend(left.next().cloned());
        }
    }
    let first = ours.first()?.to_string_lossy().into_owned();
    let name = first.split('=').next().unwrap_or_default();
    let line: Vec<OsString> = ["plimsoll", subcommand]
        .map(OsString::from)
        .into_iter()
        .chain(ours)
        .chain(["--".into()])
        .chain(rest)
        .collect();
    Some(format!(
        "{name} is after the command, so the script receives it; for plimsoll, write it before the command: {}",
        shell::shown(&line)
    ))
}

/// Whether an option of this name takes a value; none if there is no such option.
fn takes_value(subcommand: &str, name: &str) -> Option<bool> {
    let cli = Cli::command();
    let known = cli.find_subcommand(subcommand)?;
    let mut options = known.get_arguments().filter(|it| it.get_long() == Some(name));
    options.next().map(|it| it.get_action().takes_values())
}

/// Whether the script has no such option itself; where its text is not known, only the name of a card tells.
fn is_meant_for_us(name: &str, value: Option<&str>, text: Option<&str>) -> bool {
    let Some(text) = text else {
        return name == "gpu" && value.is_some_and(|it| cards::find(it).is_ok());
    };
    let underscored = name.replace('-', "_");
    // As argparse, click, fire, and the fields of a dataclass spell it; or a script that takes its words apart itself.
    let spelled = [name, &underscored].into_iter().any(|spelling| {
        [
            format!("--{spelling}"),
            format!("\"{spelling}\""),
            format!("'{spelling}'"),
            format!("{spelling}:"),
            format!("{spelling}="),
        ]
        .iter()
        .any(|it| text.contains(it.as_str()))
    });
    !spelled && !text.contains("sys.argv")
}

/// The text of a Python script.
fn text(word: &OsStr) -> Option<String> {
    let path = Path::new(word);
    let is_script = path.extension().is_some_and(|it| it == "py");
    is_script.then(|| bounded_file::text(path, bounded_file::SOURCE).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_script_does_not_know_is_pointed_out() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let tiny = script("tiny.py", "import torch\ntorch.ones(2).cuda()\n");
        let parses =
            script("parses.py", "parser.add_argument('--gpu')\nparser.add_argument('--steps')\n");
        let said = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            remark("predict", &words)
        };
        assert_eq!(
            said(&["BS=4", "python", &tiny, "--lr", "1", "--gpu", "rtx4090", "--until-exit"])
                .unwrap(),
            format!(
                "--gpu is after the command, so the script receives it; for plimsoll, write it before the command: plimsoll predict \
                 --gpu rtx4090 --until-exit -- BS=4 python {tiny} --lr 1"
            )
        );
        assert!(
            said(&["python", &tiny, "--max=22GiB"])
                .unwrap()
                .contains("predict --max=22GiB -- python")
        );
        assert_eq!(said(&["python", &parses, "--gpu", "0", "--steps", "10"]), None);
        assert_eq!(said(&["python", &tiny, "--lr", "1"]), None);
        assert_eq!(said(&["python", "-m", "train", "--gpu", "0", "--steps", "9"]), None);
        assert!(said(&["python", "-m", "train", "--gpu", "rtx4090"]).is_some());
    }
}
