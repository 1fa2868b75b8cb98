//! The command that a log is of, as shells, notebooks, CI systems and launchers write it before, and errors after.
//!
//! It is told, never run: a log may be a stranger's.

use crate::{printed::Command, sources::lines::Stream};

/// Programs that start a training, or what starts them.
const STARTERS: [&str; 24] = [
    "python",
    "torchrun",
    "accelerate",
    "deepspeed",
    "vllm",
    "yolo",
    "uv",
    "poetry",
    "pipenv",
    "pixi",
    "conda",
    "litgpt",
    "lightning",
    "tune",
    "axolotl",
    "llamafactory-cli",
    "composer",
    "ray",
    "mpirun",
    "horovodrun",
    "bash",
    "sh",
    "make",
    "just",
];
/// What is put before a command, and says nothing about it.
const WRAPPERS: [&str; 8] = ["sudo", "nohup", "time", "srun", "nice", "exec", "stdbuf", "unbuffer"];
/// Commands that only look.
const LOOKS: [&str; 5] = ["-m pip", "-c ", "--version", "-V", "-m venv"];
/// Characters of one command.
const LONGEST: usize = 4_000;

/// Every command of a stream, in its order.
pub(super) fn all(stream: &Stream<'_>) -> Vec<Command> {
    let mut res: Vec<Command> = Vec::new();
    let mut script: Option<(String, usize)> = None;
    res.extend(pods(stream));
    for line in &stream.lines {
        let text: &str = &line.text;
        if LONGEST < text.len() {
            continue;
        }
        if script.is_none() {
            script = outermost(text).map(|it| (it, line.number));
        }
        if let Some(it) = of_line(text) {
            let processes = processes(&it);
            let writer = stream.writer.map(str::to_owned);
            res.push(Command { text: it, line: line.number, writer, processes, is_bare: false });
        }
    }
    if let Some((script, line)) = script.filter(|_| res.is_empty()) {
        let writer = stream.writer.map(str::to_owned);
        res.push(Command {
            text: format!("python {}", quoted(&script)),
            line,
            writer,
            processes: 1,
            is_bare: true,
        });
    }
    res
}

/// `Command:` and `Args:` of `kubectl describe`, a word in each of the lines below.
fn pods(stream: &Stream<'_>) -> Option<Command> {
    let lines = &stream.lines;
    let indent = |it: &str| it.len() - it.trim_start().len();
    let words_below = |title: &str| {
        let head = lines.iter().position(|it| it.text.trim() == title)?;
        let below = lines[head + 1..].iter();
        let below = below.take_while(|it| indent(&lines[head].text) < indent(&it.text));
        Some((lines[head].number, below.map(|it| it.text.trim().to_owned()).collect::<Vec<_>>()))
    };
    let (line, mut words) = words_below("Command:").or_else(|| words_below("Args:"))?;
    if let Some((at, more)) = words_below("Args:").filter(|it| it.0 != line) {
        words.extend(more.into_iter().filter(|_| line < at));
    }
    let text = of_words(&words)?;
    let processes = processes(&text);
    let writer = stream.writer.map(str::to_owned);
    Some(Command { text, line, writer, processes, is_bare: false })
}

/// `File "train.py", line 3, in <module>` of somebody's own script.
fn outermost(text: &str) -> Option<String> {
    let (file, rest) = text.split_once("File \"")?.1.split_once('"')?;
    let is_script = rest.contains("in <module>")
        && crate::recording::is_users_code(&file.replace('\\', "/"), 1);
    (is_script && !file.starts_with('<')).then(|| file.to_owned())
}

fn of_line(text: &str) -> Option<String> {
    let trimmed = text.trim();
    let is_worth =
        [".py", ".sh", "-m ", "-train"].iter().chain(&STARTERS).any(|it| trimmed.contains(it));
    if !is_worth {
        return None;
    }
    if let Some(list) = called(trimmed).or_else(|| killed(trimmed)) {
        return of_words(&list);
    }
    if let Some((_, command)) = trimmed.split_once("] cmd = ") {
        return of_words(&split(command)?);
    }
    // `line 12: 30518 Killed   python train.py`
    if let Some((head, command)) = trimmed.split_once(" Killed ")
        && head.ends_with(|it: char| it.is_ascii_digit())
    {
        return typed(command.trim());
    }
    let marks = ["##[group]Run ", "[command]", "$ ", "# ", "% ", "> ", "❯ ", "➜ ", "» "];
    let marked = |mark: &str| {
        let at = trimmed.find(mark)?;
        let before = &trimmed[..at];
        let is_prompt = before.chars().count() <= 80
            && !before.contains(['"', '='])
            && (mark != "# " || before.contains(['@', ':', '/']));
        is_prompt.then(|| typed(trimmed[at + mark.len()..].trim())).flatten()
    };
    let of_shell = ["+ ", "++ ", "!", "%run ", "Run ", ">>> !"].iter().find_map(|prompt| {
        let rest = trimmed.strip_prefix(prompt)?;
        let rest = if *prompt == "%run " { format!("python {rest}") } else { rest.to_owned() };
        typed(rest.trim())
    });
    of_shell.or_else(|| marks.iter().find_map(|it| marked(it))).or_else(|| bare(trimmed))
}

/// A line that is a command and nothing else; a sentence that begins like one is none.
fn bare(text: &str) -> Option<String> {
    let first = text.split_whitespace().next()?;
    if !WRAPPERS.contains(&first) && !STARTERS.contains(&first) && !first.starts_with("python") {
        return None;
    }
    let words = split(text)?;
    let script = words.iter().position(|it| it.ends_with(".py") || it == "-m")?;
    let is_an_argument = |pair: &[String]| {
        pair[1].starts_with('-')
            || pair[0].starts_with('-')
            || pair[1].contains(['=', '/', '.', '_'])
    };
    words[script..].windows(2).all(is_an_argument).then(|| of_words(&words)).flatten()
}

/// `Command '['python', 'train.py']' returned non-zero exit status 1.`
fn called(text: &str) -> Option<Vec<String>> {
    let rest = text.split_once("CalledProcessError: Command ")?.1;
    let end = rest.rfind(" returned non-zero").or_else(|| rest.rfind(" died with"))?;
    let inside = rest[..end].trim_matches('\'');
    match inside.strip_prefix('[') {
        Some(_) => list(inside),
        None => split(inside),
    }
}

/// `['python', '-u', 'main.py'] exits with return code = -9`
fn killed(text: &str) -> Option<Vec<String>> {
    let end = text.find("] exits with return code")?;
    list(&text[text[..end].find("['")?..=end])
}

/// `['a', 'b c']`, as Python prints it.
fn list(text: &str) -> Option<Vec<String>> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let mut res = Vec::new();
    let mut rest = inside.trim();
    while let Some(quote) = rest.chars().next().filter(|it| ['\'', '"'].contains(it)) {
        let end = rest[1..].find(quote)? + 1;
        res.push(rest[1..end].to_owned());
        rest = rest[end + 1..].trim_start_matches([',', ' ']);
    }
    (!res.is_empty() && rest.is_empty()).then_some(res)
}

/// A command line as somebody typed it, without what the shell does with what it prints.
fn typed(text: &str) -> Option<String> {
    of_words(&split(text)?)
}

/// Words as a shell splits them, up to what is no longer of the first command.
fn split(text: &str) -> Option<Vec<String>> {
    let mut res: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut is_word = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(it), c) if it == c => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                is_word = true;
            }
            (None, '|' | ';' | '&') => break,
            (None, '>') => {
                // `2>` and `&>` belong to it.
                if word.chars().all(|it| it.is_ascii_digit()) {
                    word.clear();
                    is_word = false;
                }
                break;
            }
            (None, '\\') if chars.peek().is_none() => break,
            (None, '\\') => word.extend(chars.next()),
            (None, c) if c.is_whitespace() => {
                if is_word || !word.is_empty() {
                    res.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            (None, c) => word.push(c),
        }
    }
    if is_word || !word.is_empty() {
        res.push(word);
    }
    (quote.is_none() && !res.is_empty()).then_some(res)
}

/// As it would be typed again, if it starts something.
fn of_words(words: &[String]) -> Option<String> {
    let mut words = words;
    // In a container it is the image's own command.
    if let [first, second, rest @ ..] = words
        && ["docker", "podman", "nerdctl", "apptainer", "singularity"].contains(&first.as_str())
        && ["run", "exec"].contains(&second.as_str())
    {
        let starts = |it: &String| it.starts_with("python") || STARTERS.contains(&it.as_str());
        words = &rest[rest.iter().position(starts)?..];
    }
    let mut settings: Vec<&String> = Vec::new();
    loop {
        let first = words.first()?;
        let is_setting = first.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
        });
        if first == "env" {
            words = &words[1..];
        } else if is_setting {
            // The phantom has its own devices.
            if !first.starts_with("CUDA_VISIBLE_DEVICES=") {
                settings.push(first);
            }
            words = &words[1..];
        } else if WRAPPERS.contains(&first.as_str()) {
            let options = words[1..].iter().take_while(|it| it.starts_with('-')).count();
            words = &words[1 + options..];
        } else {
            break;
        }
    }
    let program = words.first()?.replace('\\', "/");
    let name = program.rsplit('/').next().unwrap_or_default().trim_end_matches(".exe").to_owned();
    let is_script = name.ends_with(".sh") || name.ends_with(".py");
    let is_python = name.starts_with("python");
    // `fairseq-train`, `tao-train`
    let is_starter = is_python || name.ends_with("-train") || STARTERS.contains(&name.as_str());
    if !(is_starter || is_script && program.starts_with(['.', '/']))
        || words.len() < 2 && !is_script
    {
        return None;
    }
    let mut rest: Vec<&String> = words[1..].iter().collect();
    let mut first = if is_script { program.clone() } else { name };
    if is_python {
        rest.retain(|word| {
            !["-u", "-B", "-X"].contains(&word.as_str())
                && !word.starts_with("--local_rank")
                && !word.starts_with("--local-rank")
        });
        // What DeepSpeed's starter starts: the script and its arguments come after its own options.
        let is_launcher = |it: &[&String]| it[0] == "-m" && it[1].starts_with("deepspeed.launcher");
        if let Some(at) = rest.windows(2).position(is_launcher) {
            let tail = &rest[at + 2..];
            let own = tail.iter().take_while(|it| it.starts_with("--")).count();
            rest = tail[own..].to_vec();
            "deepspeed".clone_into(&mut first);
        }
    }
    let mut all: Vec<String> = Vec::new();
    if !settings.is_empty() {
        all.push("env".to_owned());
        all.extend(settings.iter().map(|it| quoted(it)));
    }
    all.push(quoted(&first));
    all.extend(rest.iter().map(|it| quoted(it)));
    let text = all.join(" ");
    (!LOOKS.iter().any(|it| text.contains(it)) && !text.contains("plimsoll ")).then_some(text)
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || "-_./=:,+@%^~".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Processes that a launcher starts.
fn processes(command: &str) -> u32 {
    let words: Vec<&str> = command.split([' ', '=']).collect();
    let options = [
        "--nproc_per_node",
        "--nproc-per-node",
        "--num_processes",
        "--num_gpus",
        "--tensor-parallel-size",
    ];
    let at = words.iter().position(|it| options.contains(it));
    at.and_then(|it| words.get(it + 1))
        .and_then(|it| it.parse().ok())
        .filter(|it| (1..=1024).contains(it))
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_they_stand_in_logs() {
        for (text, expected) in [
            ("$ python train.py --lr 1e-4 2>&1 | tee log", "python train.py --lr 1e-4"),
            ("(base) mira@lab3:~/seg$ CUDA_VISIBLE_DEVICES=1 python train.py", "python train.py"),
            ("root@3f1d:/workspace# BS=4 python -u train.py > out.txt", "env BS=4 python train.py"),
            ("PS C:\\Users\\Jo> python finetune.py --res 768", "python finetune.py --res 768"),
            ("[user@node12 vit]$ srun --gres=gpu:1 python main.py", "python main.py"),
            ("!python run.py --name 'a b'", "python run.py --name 'a b'"),
            ("$ fairseq-train data-bin/wmt --lr 5e-4", "fairseq-train data-bin/wmt --lr 5e-4"),
            ("%run train.py", "python train.py"),
            (
                "$ docker run --gpus all -m 16g lab/train python train.py -b 8",
                "python train.py -b 8",
            ),
            (
                "srun python -m src.train data.batch_size=256",
                "python -m src.train data.batch_size=256",
            ),
            ("python train.py --epochs 3", "python train.py --epochs 3"),
            ("+ torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 2 train.py"),
            ("##[group]Run make gpu-tests", "make gpu-tests"),
            (
                "x.sh: line 12: 30518 Killed                  python train.py -b 4",
                "python train.py -b 4",
            ),
            (
                "subprocess.CalledProcessError: Command '['/usr/bin/python3', 't.py', '--n', '4']' returned non-zero exit status 1.",
                "python3 t.py --n 4",
            ),
            (
                "[INFO] [runner.py:540:main] cmd = /opt/python -u -m deepspeed.launcher.launch --world_info=abc --master_port=1 main.py --bs 8",
                "deepspeed main.py --bs 8",
            ),
        ] {
            assert_eq!(of_line(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "loss = python / 2",
            "$ nvidia-smi",
            "$ python --version",
            "# python train.py trains it",
            "$ plimsoll explain train.log",
            "a \"$ python x.py\" b",
            "$ docker run --rm lab/train",
            "python train.py crashes after 3 steps",
            "python is slow",
            "$ python 'train.py",
        ] {
            assert_eq!(of_line(text), None, "{text}");
        }
        assert_eq!(processes("torchrun --nproc_per_node=4 train.py"), 4);
    }
}
