//! What to type instead, where the command line makes no sense and the mistake is a known one.

use std::ffi::{OsStr, OsString};

use clap::{
    ArgMatches, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use plimsoll_core::spelling::nearest;

use crate::shell::shown;

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
            if let Some(sentence) = negative(&given, grammar, words) {
                return Some(sentence);
            }
            match mistyped(error, &given) {
                Some(meant) => Some(format!(
                    "plimsoll {} has no option {given}; did you mean `{meant}`?",
                    words.get(1)?.display()
                )),
                None => too_early(&given, grammar, words)
                    .or_else(|| a_value(&given, grammar, words))
                    .or_else(|| no_option(&given, grammar, words)),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            no_script(error, grammar, words).or_else(|| missing(error, grammar, words))
        }
        ErrorKind::ValueValidation => refused(error),
        ErrorKind::InvalidValue => without_value(error, words),
        _ => None,
    }
}

/// `plimsoll predict --steps -3 -- python train.py`: clap takes a value with a minus for an option. Told as for `--steps=-3`.
fn negative(given: &str, grammar: &Command, words: &[OsString]) -> Option<String> {
    let is_number = |word: &str| {
        let rest = word.strip_prefix('-');
        rest.is_some_and(|it| it.starts_with(|first: char| first.is_ascii_digit() || first == '.'))
    };
    if !is_number(given) {
        return None;
    }
    let ours = words.split(|word| word == "--").next()?;
    let is_it = |word: &OsString| word.to_str().is_some_and(|it| it.starts_with(given));
    let at = ours.iter().position(is_it)?;
    let option = ours.get(at.checked_sub(1)?)?.to_str().filter(|it| it.starts_with("--"))?;
    let value = ours[at].to_str()?;
    let joined = [&words[..at - 1], &[format!("{option}={value}").into()], &words[at + 1..]];
    let error = grammar.clone().try_get_matches_from(joined.concat()).err()?;
    (error.kind() == ErrorKind::ValueValidation).then(|| refused(&error))?
}

/// `plimsoll check --add -- python train.py`: an option lacks its value.
fn without_value(error: &clap::Error, words: &[OsString]) -> Option<String> {
    if !text(error, ContextKind::InvalidValue)?.is_empty() {
        return None;
    }
    // `--add <NAME>`, `--gpu <CARD|FILE.toml>`
    let whole = text(error, ContextKind::InvalidArg)?;
    let (option, value) = whole.split_once(" <")?;
    let value = value.split(['|', '>']).next()?;
    let at = words.iter().position(|word| word == option)?;
    let with: [&[OsString]; 3] = [&words[..=at], &[value.into()], &words[at + 1..]];
    let mut line = with.concat();
    line[0] = "plimsoll".into();
    Some(format!("{option} needs a value, {value}: {}", shown(&line)))
}

/// `--steps 0`, `--memory 12`: why the option does not take the value.
fn refused(error: &clap::Error) -> Option<String> {
    // `--steps <N>`
    let option = text(error, ContextKind::InvalidArg)?;
    let option = option.split_whitespace().next()?;
    let said = std::error::Error::source(error)?.to_string();
    let given = text(error, ContextKind::InvalidValue)?;
    let of = if said.contains(&given) { String::new() } else { format!(" {given}") };
    Some(format!("{option}{of}: {said}"))
}

/// `plimsoll predict -- --gpu t4 python train.py`: an option of ours behind the dashes, before the command.
pub(crate) fn behind_dashes(
    grammar: &Command,
    given: &ArgMatches,
    words: &[OsString],
) -> Option<String> {
    let (name, options) = given.subcommand()?;
    let command: Vec<OsString> =
        options.try_get_many::<OsString>("command").ok()??.cloned().collect();
    let subcommand = grammar.find_subcommand(name)?;
    let mut rest = command.iter().peekable();
    let mut ours: Vec<OsString> = Vec::new();
    while let Some(word) = rest.peek().and_then(|it| it.to_str()) {
        let Some((long, value)) = word
            .strip_prefix("--")
            .map(|it| it.split_once('=').map_or((it, None), |(long, value)| (long, Some(value))))
        else {
            break;
        };
        let arg = subcommand.get_arguments().find(|arg| arg.get_long() == Some(long))?;
        ours.extend(rest.next().cloned());
        if value.is_none() && arg.get_action().takes_values() && !arg.is_require_equals_set() {
            ours.extend(rest.next().cloned());
        }
    }
    let first = ours.first()?.to_string_lossy().into_owned();
    let option = first.split('=').next().unwrap_or_default();
    let dashes = words.iter().position(|word| word == "--")?;
    let mut line: Vec<OsString> = vec!["plimsoll".into()];
    line.extend(words[1..dashes].iter().cloned());
    line.extend(ours);
    line.push("--".into());
    line.extend(rest.cloned());
    Some(format!("{option} goes before `--`: {}", shown(&line)))
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

/// `plimsoll --gpu t4 predict train.py`: an option of a command before the command.
fn too_early(given: &str, grammar: &Command, words: &[OsString]) -> Option<String> {
    let is_command = |word: &OsString| grammar.find_subcommand(word).is_some();
    let at = words.iter().skip(1).position(is_command)? + 1;
    let name = words[at].to_str()?;
    let long = given.strip_prefix("--")?;
    let has_it = |it: &Command| it.get_arguments().any(|arg| arg.get_long() == Some(long));
    if at == 1 || !has_it(grammar.find_subcommand(name)?) {
        return None;
    }
    let parts = [&words[at..=at], &words[1..at], &words[at + 1..]];
    let line: Vec<OsString> = std::iter::once("plimsoll".into()).chain(parts.concat()).collect();
    Some(format!("{given} goes after {name}: {}", shown(&line)))
}

/// `plimsoll lint --json train.py`: what other commands have as an option is here a value of one.
fn a_value(given: &str, grammar: &Command, words: &[OsString]) -> Option<String> {
    let name = words.get(1)?.to_str()?;
    let long = given.strip_prefix("--")?;
    let mut arguments = grammar.find_subcommand(name)?.get_arguments();
    let option = arguments.find(|arg| {
        arg.get_long().is_some() && arg.get_possible_values().iter().any(|it| it.get_name() == long)
    })?;
    Some(format!(
        "plimsoll {name} has no option {given}; did you mean `--{} {long}`?",
        option.get_long()?
    ))
}

/// `plimsoll replay`, without a file: what it lacks, and the first example of its help that has it.
fn missing(error: &clap::Error, grammar: &Command, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let [one] = missing.as_slice() else { return None };
    let command = words.iter().skip(1).find_map(|word| grammar.find_subcommand(word))?;
    let help = command.get_after_help()?.to_string();
    let start = format!("plimsoll {} ", command.get_name());
    let option = one.split_whitespace().next().filter(|it| it.starts_with('-'));
    let mut examples = help
        .lines()
        .filter_map(|line| line.trim_start().split("  ").next())
        .filter(|line| line.starts_with(&start) && !line.ends_with('\\'));
    let example = examples.find(|line| option.is_none_or(|it| line.contains(it)))?;
    Some(format!("{}needs {one}, as in `{example}`", &start))
}

/// `plimsoll predict --batch-size 4 -- python train.py`: an option of the script before the command.
fn no_option(given: &str, grammar: &Command, words: &[OsString]) -> Option<String> {
    let name = words.get(1)?.to_str()?;
    let subcommand = grammar.find_subcommand(name)?;
    // `lint` reads files, and may be given a command, too.
    let runs =
        |it: &Command| it.get_positionals().next().is_some_and(|arg| arg.get_id() == "command");
    if !runs(subcommand) {
        return None;
    }
    let has = |it: &&Command| {
        let long = given.strip_prefix("--");
        runs(it) && long.is_some() && it.get_arguments().any(|arg| arg.get_long() == long)
    };
    let other = grammar.get_subcommands().filter(|it| !it.is_hide_set()).find(has);
    let other =
        other.map_or_else(String::new, |it| format!(" (plimsoll {} has it)", it.get_name()));
    let start = format!(
        "plimsoll {name} has no option {given}{other}; an option of the script goes after the script"
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
    use std::any::TypeId;

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
    fn what_is_missing_comes_with_an_example() {
        assert_eq!(
            hint_of("plimsoll replay").unwrap(),
            "plimsoll replay needs <FILE>, as in `plimsoll replay snapshot.pickle`"
        );
        assert_eq!(
            hint_of("plimsoll layouts --gpu h100 -- python x.py").unwrap(),
            "plimsoll layouts needs --gpus <N>, as in `plimsoll layouts --gpu h100-80g --gpus 8 -- python t.py --tp {tp} --bs {bs}`"
        );
    }

    #[test]
    fn an_option_of_a_command_before_it_and_one_that_is_a_value_here() {
        assert_eq!(
            hint_of("plimsoll --gpu t4 predict python train.py").unwrap(),
            "--gpu goes after predict: plimsoll predict --gpu t4 python train.py"
        );
        assert_eq!(
            hint_of("plimsoll lint --json train.py").unwrap(),
            "plimsoll lint has no option --json; did you mean `--format json`?"
        );
        assert_eq!(hint_of("plimsoll lint --jsonl train.py"), None);
    }

    #[test]
    fn an_option_of_the_script_before_the_command() {
        assert_eq!(
            hint_of("plimsoll predict --gpu t4 --batchsize 4 -- python t.py --lr 1").unwrap(),
            "plimsoll predict has no option --batchsize; an option of the script goes after the script: \
             plimsoll predict --gpu t4 -- python t.py --lr 1 --batchsize 4"
        );
        let of_fit = hint_of("plimsoll predict --users 8 -- vllm serve m").unwrap();
        assert!(
            of_fit.starts_with("plimsoll predict has no option --users (plimsoll fit has it); an"),
            "{of_fit}"
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
    fn a_number_that_an_option_does_not_take() {
        let steps = "--steps -3: expected a whole number from 1 on, as in `3`";
        for line in ["predict --gpu t4 --steps -3 -- python t.py", "predict --steps=-3 python t.py"]
        {
            assert_eq!(hint_of(&format!("plimsoll {line}")).unwrap(), steps, "{line}");
        }
        let zero = hint_of("plimsoll predict --steps 0 -- python t.py").unwrap();
        assert_eq!(zero, "--steps 0: expected a whole number from 1 on, as in `3`");
        let size = hint_of("plimsoll predict --max -5GiB -- python t.py").unwrap();
        assert!(size.starts_with("--max: cannot read \"-5GiB\" as a size: expected"), "{size}");
        for (option, line) in [
            ("--max", "predict --max 12 -- python t.py"),
            ("--capacity", "replay a.pickle --capacity 12"),
            ("--budget", "fit --budget=12 -- python t.py"),
        ] {
            assert_eq!(
                hint_of(&format!("plimsoll {line}")).unwrap(),
                format!("{option}: 12 has no unit; did you mean 12GiB? (bytes have the unit `B`)")
            );
        }
        // The script's, and not after an option.
        let own = hint_of("plimsoll predict -3 -- python t.py").unwrap();
        assert!(own.contains("has no option -3"), "{own}");
    }

    /// Whatever is wrong with a value of whatever option, the sentence names it, what is expected, and an example that the option takes.
    #[test]
    fn every_value_that_is_refused_is_told_with_what_is_expected_and_an_example() {
        const WRONG: [&str; 16] = [
            "ten",
            "-3",
            "0",
            "1.5",
            "1e9",
            "0x10",
            "NaN",
            "inf",
            "7..",
            "1,000",
            "99999999999999999999999",
            "3 4",
            "x",
            "12",
            "110%",
            "\u{663}",
        ];
        let numbers = [
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<f64>(),
            TypeId::of::<plimsoll_core::units::Bytes>(),
        ];
        let mut grammar = Cli::command();
        grammar.build();
        let mut tried = 0;
        for command in grammar.get_subcommands() {
            for arg in command.get_opts() {
                let (name, option) = (command.get_name(), arg.get_long().unwrap());
                let refusal = |value: &str| {
                    let words: Vec<OsString> =
                        ["plimsoll", name, &format!("--{option}={value}")].map(Into::into).into();
                    let error = Cli::command().try_get_matches_from(&words).err()?;
                    (error.kind() == ErrorKind::ValueValidation)
                        .then(|| hint(&error, &Cli::command(), &words).unwrap())
                };
                let is_number = numbers.iter().any(|it| arg.get_value_parser().type_id() == *it);
                assert!(!is_number || refusal("ten").is_some(), "{name} --{option} takes `ten`");
                for value in WRONG {
                    let Some(said) = refusal(value) else { continue };
                    tried += 1;
                    let at = format!("{name} --{option}={value}: {said}");
                    assert!(
                        said.starts_with(&format!("--{option}")) && said.contains(value),
                        "{at}"
                    );
                    if let Some((_, meant)) = said.split_once("did you mean ") {
                        let meant = meant.split(['?', '`']).find(|it| !it.is_empty()).unwrap();
                        assert_eq!(refusal(meant), None, "{at}");
                        continue;
                    }
                    let (_, expected) =
                        said.split_once("expected ").unwrap_or_else(|| panic!("{at}"));
                    for (_, example) in expected
                        .match_indices("as in `")
                        .map(|it| expected.split_at(it.0 + "as in `".len()))
                    {
                        let example = example.split('`').next().unwrap();
                        assert_eq!(refusal(example), None, "{at}");
                    }
                    assert!(!is_number || expected.contains("as in `"), "{at}");
                }
            }
        }
        assert!(300 < tried, "{tried}");
    }

    #[test]
    fn an_option_without_its_value() {
        assert_eq!(
            hint_of("plimsoll check --add -- python t.py").unwrap(),
            "--add needs a value, NAME: plimsoll check --add NAME -- python t.py"
        );
        assert_eq!(
            hint_of("plimsoll predict --gpu -- python t.py").unwrap(),
            "--gpu needs a value, CARD: plimsoll predict --gpu CARD -- python t.py"
        );
        assert_eq!(hint_of("plimsoll predict --color pink -- python t.py"), None);
    }

    #[test]
    fn an_option_behind_the_dashes() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let given = Cli::command().try_get_matches_from(&words).unwrap();
            behind_dashes(&Cli::command(), &given, &words)
        };
        assert_eq!(
            said("plimsoll predict --max 5GiB -- --gpu t4 --until-exit python t.py --lr 1")
                .unwrap(),
            "--gpu goes before `--`: plimsoll predict --max 5GiB --gpu t4 --until-exit -- python t.py --lr 1"
        );
        let joined = said("plimsoll fit -- --gpu=t4 python t.py").unwrap();
        assert!(joined.ends_with(": plimsoll fit --gpu=t4 -- python t.py"), "{joined}");
        // One that takes no word behind it.
        let alone = said("plimsoll predict -- --ghost-weights python t.py").unwrap();
        assert!(alone.ends_with(": plimsoll predict --ghost-weights -- python t.py"), "{alone}");
        assert_eq!(said("plimsoll predict -- python t.py --gpu t4"), None);
        assert_eq!(said("plimsoll predict -- --batch 4 python t.py"), None);
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
