//! What the user typed after `--`, made ready to start: `train.py` becomes `python train.py`, and what
//! cannot be started is said in a sentence.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use plimsoll_core::recording::{ENGINES, EngineWords};

use crate::{contract, files::reason::of_windows, output};

/// A command, resolved.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCommand {
    /// As given, or as found in `PATH`.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// What stood before it: `BS=4 python train.py`.
    pub(crate) environment: Vec<Variable>,
}

/// A variable of the environment, and its value.
pub(crate) type Variable = (OsString, OsString);

/// Leading words of the form `NAME=value`, as `env` takes them, and the command behind them.
pub(crate) fn assignments(words: &[OsString]) -> (Vec<Variable>, &[OsString]) {
    let variables: Vec<Variable> = words.iter().map_while(|it| assignment(it)).collect();
    let rest = words.get(variables.len()..).unwrap_or_default();
    (variables, rest)
}

fn assignment(word: &OsStr) -> Option<Variable> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|it| *it == b'=')?;
    let (name, value) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    let first = name.first()?;
    let is_name = (first.is_ascii_alphabetic() || *first == b'_')
        && name.iter().all(|it| it.is_ascii_alphanumeric() || *it == b'_');
    is_name.then(|| (OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
}

impl ScriptCommand {
    /// `words` is not empty; the grammar sees to that.
    pub(crate) fn resolve(words: &[OsString]) -> anyhow::Result<ScriptCommand> {
        let (environment, command) = assignments(words);
        let Some((first, rest)) = command.split_first() else {
            let before = words.last().context("no command was given")?.display();
            bail!("no command follows {before}");
        };
        let as_given = Path::new(first);
        if is_python_file(as_given) && !can_be_started(as_given) {
            if !as_given.exists() {
                bail!("{}", no_such_script(as_given));
            }
            let program = python()?;
            return Ok(ScriptCommand { program, arguments: command.to_vec(), environment });
        }
        let arguments = rest.to_vec();
        if has_folder(as_given) {
            check_executable(as_given)?;
            return Ok(ScriptCommand { program: as_given.to_owned(), arguments, environment });
        }
        match in_path(first) {
            Some(program) => Ok(ScriptCommand { program, arguments, environment }),
            None => bail!("{}", not_in_path(first)),
        }
    }

    /// What its environment holds under this name: from before it, or ours.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let own = self.environment.iter().rev().find(|it| it.0 == name);
        own.map(|it| it.1.clone()).or_else(|| env::var_os(name))
    }

    /// What a person would call it: the script, not its interpreter.
    pub(crate) fn name(&self) -> String {
        let script = self.is_python().then(|| self.python_words().1).flatten();
        let path = script.unwrap_or(&self.program);
        output::shown(Path::new(path.file_name().unwrap_or(path.as_os_str())))
    }

    /// Whether this starts a Python interpreter itself, not through a launcher.
    pub(crate) fn is_python(&self) -> bool {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
        // `python3.13t` has no global lock.
        version
            .map(|it| it.strip_suffix('t').unwrap_or(it))
            .is_some_and(|it| it.chars().all(|c| c.is_ascii_digit() || c == '.'))
    }

    /// The options of a Python interpreter that come before the script, and the script: a file, or
    /// nothing for `-m`, `-c` and standard input.
    pub(crate) fn python_words(&self) -> (Vec<&OsStr>, Option<&Path>) {
        let mut options = Vec::new();
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            if !text.starts_with('-') || text == "-" {
                return (options, (text != "-").then(|| Path::new(word)));
            }
            options.push(word.as_os_str());
            if text.starts_with("-m") || text.starts_with("-c") {
                return (options, None);
            }
            if matches!(&*text, "-W" | "-X" | "--check-hash-based-pycs") {
                words.next();
            }
        }
        (options, None)
    }

    /// Whether it is Python that runs a launcher's module, as in `python -m torch.distributed.run`.
    pub(crate) fn is_launcher(&self) -> bool {
        let module = self.arguments.iter().skip_while(|it| *it != "-m").nth(1);
        let launches =
            |it: &str| it.starts_with("torch.distributed.") || it.starts_with("accelerate");
        self.python_words().1.is_none() && module.and_then(|it| it.to_str()).is_some_and(launches)
    }

    /// The sentence for a failed exec.
    pub(crate) fn cannot_start(&self, error: &io::Error) -> anyhow::Error {
        let program = self.program.display();
        match error.kind() {
            // It was there when we looked: then it is what its first line names that is not.
            io::ErrorKind::NotFound if self.program.exists() => anyhow::anyhow!(
                "cannot start {program}: the interpreter in its first line does not exist"
            ),
            io::ErrorKind::ArgumentListTooLong => {
                anyhow::anyhow!(
                    "cannot start {program}: its arguments and environment are too long"
                )
            }
            _ => anyhow::anyhow!("cannot start {program}: {}", crate::cache::reason(error)),
        }
    }
}

/// The Python that runs a script given without one: `$PLIMSOLL_PYTHON`, else `python3`, else `python`.
pub(crate) fn python() -> anyhow::Result<PathBuf> {
    if let Some(given) = env::var_os(contract::PYTHON).filter(|it| !it.is_empty()) {
        let path = PathBuf::from(&given);
        let found =
            if has_folder(&path) { can_be_started(&path).then_some(path) } else { in_path(&given) };
        return found.with_context(|| {
            let given = given.display();
            format!(
                "PLIMSOLL_PYTHON is {given}, which is not a program; set it to the path of a Python interpreter"
            )
        });
    }
    ["python3", "python"].iter().find_map(|it| in_path(OsStr::new(it))).context(
        "found no Python: neither python3 nor python is in PATH; set PLIMSOLL_PYTHON to an interpreter",
    )
}

/// `script does not exist`, with where we looked and what is like it there.
pub(crate) fn no_such_script(script: &Path) -> String {
    let name = script.display();
    let here = env::current_dir().map(|it| it.display().to_string()).unwrap_or_default();
    let place = if script.is_absolute() { String::new() } else { format!(" (looked in {here})") };
    format!("the script {name} does not exist{place}; check its path{}", of_windows(script))
}

fn is_python_file(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "py")
}

/// Whether a shell would look in `PATH` for it.
fn has_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

/// Whether this name can be started as it is: `./train.py` with the executable bit, or a file in `PATH`.
fn can_be_started(path: &Path) -> bool {
    if has_folder(path) { is_executable(path) } else { in_path(path.as_os_str()).is_some() }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

fn check_executable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no {shown}; check the path of the command")
        }
        Err(error) => bail!("cannot start {shown}: {}", crate::cache::reason(&error)),
        Ok(meta) if meta.is_dir() => bail!("cannot start {shown}: it is a folder, not a command"),
        Ok(_) if is_executable(path) => Ok(()),
        Ok(_) => bail!("cannot start {shown}: it is not executable (chmod +x {shown})"),
    }
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|it| it.join(name)).find(|it| is_executable(it))
}

fn not_in_path(name: &OsStr) -> String {
    let shown = name.display();
    let other = match name.to_str() {
        Some("python") => Some("python3"),
        Some("python3") => Some("python"),
        _ => None,
    };
    if let Some(other) = other.filter(|it| in_path(OsStr::new(it)).is_some()) {
        return format!("there is no command {shown} in PATH, but there is {other}: use {other}");
    }
    if Path::new(name).exists() {
        return format!("there is no command {shown} in PATH; the file here is ./{shown}");
    }
    if let Some(EngineWords { id: command, name: engine, .. }) =
        ENGINES.iter().find(|it| name == it.id)
    {
        return format!(
            "there is no command {shown} in PATH: activate the environment that has {engine}, or install it: pip install {command}"
        );
    }
    format!("there is no command {shown} in PATH; check its spelling, or activate its environment")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python_command(words: &[&str]) -> ScriptCommand {
        let arguments = words.iter().map(OsString::from).collect();
        let program = PathBuf::from("/usr/bin/python3.12");
        ScriptCommand { program, arguments, environment: Vec::new() }
    }

    #[test]
    fn takes_what_stands_before_the_command_as_env_does() {
        let words = |it: &[&str]| it.iter().map(OsString::from).collect::<Vec<_>>();
        let given = words(&["BS=4", "_X=a=b", "E=", "env", "LR=1"]);
        let command = ScriptCommand::resolve(&given).unwrap();
        let shown: Vec<String> = command
            .environment
            .iter()
            .map(|(a, b)| format!("{}={}", a.display(), b.display()))
            .collect();
        assert_eq!(shown, ["BS=4", "_X=a=b", "E="]);
        assert_eq!((command.name().as_str(), command.arguments.clone()), ("env", words(&["LR=1"])));
        assert_eq!(command.variable("BS"), Some("4".into()));
        for no_name in ["1A=2", "--x=1", "a/b=c", "=x"] {
            assert!(assignments(&words(&[no_name])).0.is_empty(), "{no_name}");
        }
        let nothing = ScriptCommand::resolve(&words(&["BS=4"])).unwrap_err().to_string();
        assert_eq!(nothing, "no command follows BS=4");
    }

    #[test]
    fn who_has_no_engine_is_told_how_to_get_it() {
        assert_eq!(
            not_in_path(OsStr::new("vllm")),
            "there is no command vllm in PATH: activate the environment that has vLLM, or install it: pip install vllm"
        );
        let other = not_in_path(OsStr::new("vllmm"));
        assert!(other.ends_with("check its spelling, or activate its environment"), "{other}");
    }

    #[test]
    fn knows_a_python_by_its_name() {
        assert!(python_command(&[]).is_python());
        for (program, expected) in
            [("python", true), ("/x/python3", true), ("torchrun", false), ("python-config", false)]
        {
            let command = ScriptCommand { program: program.into(), ..python_command(&[]) };
            assert_eq!(command.is_python(), expected, "{program}");
        }
    }

    #[test]
    fn finds_the_script_behind_pythons_options() {
        let script = |words: &[&str]| {
            let command = python_command(words);
            let (options, script) = command.python_words();
            let options: Vec<_> = options.into_iter().map(OsStr::to_os_string).collect();
            (options, script.map(Path::to_owned))
        };
        let options = |it: &[&str]| it.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(script(&["train.py", "-I"]), (options(&[]), Some("train.py".into())));
        assert_eq!(
            script(&["-u", "-W", "error", "a.py"]),
            (options(&["-u", "-W"]), Some("a.py".into()))
        );
        assert_eq!(script(&["-m", "train", "x.py"]), (options(&["-m"]), None));
        assert_eq!(script(&["-I", "-c", "pass"]), (options(&["-I", "-c"]), None));
        assert_eq!(script(&["-"]), (options(&[]), None));
    }
}
