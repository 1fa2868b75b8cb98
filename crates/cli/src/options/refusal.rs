//! What to type instead, where the command line makes no sense and the mistake is a known one.

use std::ffi::{OsStr, OsString};

use clap::{
    Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use plimsoll_core::spelling::nearest;

use crate::options::shown_command::shown;

/// Programs that start training scripts.
const STARTERS: [&str; 6] = ["python", "python3", "torchrun", "accelerate", "deepspeed", "bash"];

/// A sentence with the command that was probably meant; `words` are those of the command line, the program first.
pub(crate) fn hint(error: &clap::Error, grammar: &Command, words: &[OsString]) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            no_command(&text(error, ContextKind::InvalidSubcommand)?, words)
        }
        ErrorKind::UnknownArgument => {
            let given = text(error, ContextKind::InvalidArg)?;
            match mistyped(error, &given) {
                Some(meant) => Some(format!(
                    "plimsoll {} has no option {given}; did you mean `{meant}`?",
                    words.get(1)?.display()
                )),
                None => no_option(&given, grammar, words),
            }
        }
        ErrorKind::MissingRequiredArgument => no_script(error, grammar, words),
        _ => None,
    }
}

/// The option that clap suggests, if it is a few letters away: it also suggests `--beside` for a script's `--batchsize`.
fn mistyped(error: &clap::Error, given: &str) -> Option<String> {
    const LETTERS: usize = 2;
    let meant = text(error, ContextKind::SuggestedArg)?;
    nearest(given, LETTERS, [meant], str::to_owned).pop()
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// `plimsoll train.py` and `plimsoll python train.py`.
fn no_command(given: &str, words: &[OsString]) -> Option<String> {
    let at = words.iter().position(|word| word == given)?;
    let mut command: Vec<OsString> = ["plimsoll", "predict", "--"].map(OsString::from).into();
    if is_python_file(&words[at]) {
        command.push("python".into());
    } else if !STARTERS.contains(&given) {
        return None;
    }
    command.extend(words[at..].iter().cloned());
    Some(format!(
        "plimsoll has no command {given}; to predict the memory of a script: {}",
        shown(&command)
    ))
}

/// `plimsoll predict --batch-size 4 -- python train.py`: an option of the script before the command.
fn no_option(given: &str, grammar: &Command, words: &[OsString]) -> Option<String> {
    let name = words.get(1)?.to_str()?;
    let subcommand = grammar.find_subcommand(name)?;
    if !subcommand.get_arguments().any(|arg| arg.get_id() == "command") {
        return None;
    }
    let start = format!(
        "plimsoll {name} has no option {given}; an option of the script goes after the script"
    );
    let is_it = |word: &OsString| {
        let word = word.to_string_lossy();
        word == given || word.split_once('=').is_some_and(|parts| parts.0 == given)
    };
    let at = words.iter().position(is_it)?;
    let command_at = words.iter().position(|word| word == "--").filter(|dashes| at < *dashes);
    let Some(dashes) = command_at else {
        return Some(format!("{start}: plimsoll {name} -- python train.py {given} ..."));
    };
    let has_value = at + 1 < dashes
        && !words[at].as_encoded_bytes().contains(&b'=')
        && !words[at + 1].as_encoded_bytes().starts_with(b"-");
    let end = if has_value { at + 2 } else { at + 1 };
    let parts = [&words[1..at], &words[end..], &words[at..end]];
    let line: Vec<OsString> = std::iter::once("plimsoll".into()).chain(parts.concat()).collect();
    Some(format!("{start}: {}", shown(&line)))
}

/// `plimsoll predict --gpu t4`, without what it is to run.
fn no_script(error: &clap::Error, grammar: &Command, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let [one] = missing.as_slice() else { return None };
    let is_command = |word: &OsString| grammar.find_subcommand(word).is_some();
    let at = words.iter().skip(1).position(is_command)? + 1;
    one.starts_with("<COMMAND>").then(|| {
        let mut command = words.to_vec();
        command[0] = "plimsoll".into();
        command.retain(|word| word != "--");
        command.extend(["--", "python", "train.py"].map(OsString::from));
        format!(
            "plimsoll {} needs the command that starts your script: {}",
            words[at].display(),
            shown(&command)
        )
    })
}

fn is_python_file(word: &OsStr) -> bool {
    std::path::Path::new(word).extension().is_some_and(|extension| extension == "py")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::options::cli::Cli;

    fn hint_of(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&words).unwrap_err();
        hint(&error, &Cli::command(), &words)
    }

    #[test]
    fn a_script_without_a_command_of_plimsoll() {
        assert_eq!(
            hint_of("plimsoll train.py --lr 1").unwrap(),
            "plimsoll has no command train.py; to predict the memory of a script: plimsoll predict -- python train.py --lr 1"
        );
        let of_python = hint_of("plimsoll torchrun --nproc-per-node 8 train.py").unwrap();
        assert!(of_python.ends_with(": plimsoll predict -- torchrun --nproc-per-node 8 train.py"));
        assert_eq!(hint_of("plimsoll prodict train.py"), None);
    }

    #[test]
    fn an_option_of_the_script_before_the_command() {
        assert_eq!(
            hint_of("plimsoll predict --gpu t4 --batchsize 4 -- python t.py --lr 1").unwrap(),
            "plimsoll predict has no option --batchsize; an option of the script goes after the script: \
             plimsoll predict --gpu t4 -- python t.py --lr 1 --batchsize 4"
        );
        let joined = hint_of("plimsoll fit --batchsize=4 --gpu t4 -- python t.py").unwrap();
        assert!(
            joined.ends_with(": plimsoll fit --gpu t4 -- python t.py --batchsize=4"),
            "{joined}"
        );
        let bare = hint_of("plimsoll predict --batchsize 4 t.py").unwrap();
        assert!(bare.ends_with("plimsoll predict -- python train.py --batchsize ..."), "{bare}");
    }

    #[test]
    fn a_command_without_a_script() {
        assert_eq!(
            hint_of("plimsoll predict --gpu t4").unwrap(),
            "plimsoll predict needs the command that starts your script: plimsoll predict --gpu t4 -- python train.py"
        );
        assert!(hint_of("plimsoll fit").unwrap().ends_with(": plimsoll fit -- python train.py"));
    }

    #[test]
    fn a_mistyped_option_of_plimsoll_is_not_the_scripts() {
        assert_eq!(
            hint_of("plimsoll predict --memry 4GiB -- python t.py").unwrap(),
            "plimsoll predict has no option --memry; did you mean `--memory`?"
        );
    }
}
