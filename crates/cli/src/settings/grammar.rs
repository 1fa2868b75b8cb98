//! The command line, read with the settings for what it leaves open.

use std::env;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _, parser::ValueSource};
use plimsoll_core::printable::printable;

#[cfg(feature = "phantom")]
use crate::options::refusal;
use crate::{
    options::cli::Cli,
    output::{self, say},
    settings::{
        here::Settings,
        rows::{ROWS, Row},
        set::Set,
    },
};

/// The command line. Ends the process as clap does: for `--help`, and when it makes no sense.
pub(crate) fn parse() -> anyhow::Result<Cli> {
    let given = Cli::command().try_get_matches().unwrap_or_else(|it| refused(&it, Cli::command()));
    #[cfg(feature = "phantom")]
    if let Some(sentence) = refusal::behind_dashes(&Cli::command(), &given, &words()) {
        anyhow::bail!(sentence);
    }
    let settings = open(&given)?;
    if settings.is_empty() {
        return Ok(Cli::from_arg_matches(&given).unwrap_or_else(|it| refused(&it, Cli::command())));
    }
    tell(&given, &settings);
    let mut whole = Cli::command();
    let command = given.subcommand_name().unwrap_or_default();
    whole = whole.mut_subcommand(command, |given| {
        settings.iter().fold(given, |given, set| {
            given.mut_arg(id(set.row.option()), |arg| arg.default_values(set.value.words()))
        })
    });
    let matches = whole.clone().try_get_matches().unwrap_or_else(|it| refused(&it, whole.clone()));
    Ok(Cli::from_arg_matches(&matches).unwrap_or_else(|it| refused(&it, whole)))
}

/// Ends the process: with help, which is ours, or with what is wrong with words that may be a stranger's. Those are quoted in what clap says, so
/// it is told once more of words that can be seen.
#[expect(clippy::exit, reason = "as clap does")]
fn refused(error: &clap::Error, grammar: Command) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    #[cfg(feature = "phantom")]
    {
        if let Some(sentence) = refusal::hint(error, &grammar, &words()) {
            say(&sentence);
            std::process::exit(error.exit_code());
        }
    }
    let words = env::args_os().map(|it| printable(&it.to_string_lossy()).into_owned());
    match grammar.try_get_matches_from(words) {
        Err(it) if it.use_stderr() => output::report(&it.render().to_string()),
        _ => say(&error.render().to_string()),
    }
    std::process::exit(error.exit_code());
}

#[cfg(feature = "phantom")]
fn words() -> Vec<std::ffi::OsString> {
    env::args_os().collect()
}

/// The settings that hold for what was not given.
fn open(given: &ArgMatches) -> anyhow::Result<Vec<Set>> {
    let Some((command, options)) = given.subcommand() else { return Ok(Vec::new()) };
    let rows: Vec<_> = ROWS.iter().filter(|it| it.commands.contains(&command)).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let settings = Settings::here()?;
    // Not every command has each option that speaks for another.
    let is_given = |option: &str| {
        options.ids().any(|it| it.as_str() == id(option))
            && options.value_source(&id(option)) == Some(ValueSource::CommandLine)
    };
    let is_open = |it: &&&Row| !is_given(it.option()) && !it.unless.iter().any(|it| is_given(it));
    Ok(rows.iter().filter(is_open).filter_map(|it| settings.of_row(it)).cloned().collect())
}

/// Says which settings are in use: somebody may have forgotten them.
fn tell(given: &ArgMatches, settings: &[Set]) {
    let options = given.subcommand().map(|it| it.1);
    if options.is_some_and(|it| matches!(it.try_get_one::<bool>("quiet"), Ok(Some(true)))) {
        return;
    }
    let said: Vec<String> = settings
        .iter()
        .map(|it| format!("--{} {} ({})", it.row.option(), it.value, it.origin.shown()))
        .collect();
    say(&format!("with {}", said.join(", ")));
}

/// As the grammar calls an option.
fn id(option: &str) -> String {
    option.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::{options::cli::WorldArgs, settings::rows::Sayable};

    /// What a script may do to the world, and what is started or asked, is the user's to say.
    #[test]
    fn a_projects_file_says_nothing_of_the_world_and_starts_nothing() {
        let world = WorldArgs::augment_args(clap::Command::new("world"));
        let whole = Cli::command();
        for row in ROWS {
            let is_it = |arg: &&clap::Arg| arg.get_long() == Some(row.option());
            let is_of_world = world.get_arguments().any(|arg| is_it(&arg));
            assert!(!is_of_world || row.sayable != Sayable::Anything, "{}", row.key);
            for command in row.commands {
                let arg =
                    whole.find_subcommand(command).unwrap().get_arguments().find(is_it).unwrap();
                for name in arg.get_value_names().into_iter().flatten() {
                    let is_outside = ["COMMAND", "URL", "DIR"].contains(&name.as_str());
                    assert!(!is_outside, "{} is a {name}", row.key);
                }
            }
        }
    }

    #[test]
    fn every_setting_is_an_option_of_its_commands() {
        let whole = Cli::command();
        for row in ROWS {
            for command in row.commands {
                let command = whole.find_subcommand(command).unwrap();
                for option in std::iter::once(&row.option()).chain(row.unless) {
                    let is_it = |it: &clap::Arg| it.get_long() == Some(option);
                    let has = command.get_arguments().any(is_it);
                    assert!(has || row.option() != *option, "{} {option}", command.get_name());
                }
            }
        }
    }
}
