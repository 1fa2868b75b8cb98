//! What lines of their own say of a failure, before its words or behind them: of a process that the host killed whether it was a
//! compiler, limits that a container, a job or the kernel names, and how much it had; of an engine what it counted.

use crate::{
    failures::{Backend, Failure, Kind, SET_CACHE},
    sources::{
        lines::Line,
        numbers::{after, size_at},
    },
    units::Bytes,
};

/// Lines before and behind that are looked at.
const NEAR: usize = 40;

/// Fills in what the lines around `at` say of the host or of the engine.
pub(super) fn attach(failure: &mut Failure, lines: &[Line<'_>], at: usize) {
    match failure.backend {
        Backend::TensorRtLlm => executor(failure, &lines[at..lines.len().min(at + NEAR)]),
        Backend::Vllm => {
            let before = &lines[at.saturating_sub(NEAR)..at];
            asleep(failure, before);
            let set = before.iter().rev().find_map(|line| {
                let (head, _) = line.text.split_once(" memory for KV Cache as specified by")?;
                size(head.rsplit_once("reserved ")?.1)
            });
            failure.numbers.extend(set.map(|it| (SET_CACHE.to_owned(), it)));
        }
        _ => {}
    }
    let is_end = matches!(failure.kind, Kind::HostOutOfMemory | Kind::MaybeOutOfMemory);
    if failure.backend != Backend::Host || !is_end {
        return;
    }
    let near = &lines[at.saturating_sub(NEAR)..lines.len().min(at + NEAR)];
    failure.is_build = is_build(failure, near);
    if failure.limit.is_none() {
        failure.limit = limit(near);
    }
    if let Some((most, wanted)) = job(near) {
        failure.allocated = failure.allocated.or(most);
        failure.limit = failure.limit.or(wanted);
    }
}

/// `Total GPU memory (GiB): 140.06`, and what else TensorRT-LLM's executor says below its message.
fn executor(failure: &mut Failure, behind: &[Line<'_>]) {
    let told = |words: &str| {
        behind.iter().find_map(|line| Some(line.text.split_once(words)?.1.trim().to_owned()))
    };
    let gib = |words: &str| size(&format!("{} gib", told(words)?));
    failure.capacity = gib("Total GPU memory (GiB):");
    failure.free = gib("Free GPU memory before component creation attempt (GiB):");
    if let Some(component) = told("The following component could not be created:") {
        failure.text = format!("{} {component}", failure.text);
    }
}

/// `Sleep mode freed 9.19 GiB memory, 7.66 GiB memory is still in use.`
fn asleep(failure: &mut Failure, before: &[Line<'_>]) {
    let told = before.iter().rev().find_map(|line| {
        let lower = line.text.to_ascii_lowercase();
        let (_, rest) = lower.split_once("sleep mode freed ")?;
        Some((after(rest, ""), after(rest, "memory, ")))
    });
    let Some((freed, kept)) = told else { return };
    let named = [("given away by `sleep`", freed), ("still in use after it", kept)];
    for (name, size) in named {
        failure.numbers.extend(size.map(|it| (name.to_owned(), it)));
    }
}

/// Whether compilers ran there, and nothing of Python's fails.
fn is_build(failure: &Failure, near: &[Line<'_>]) -> bool {
    const WORDS: [&str; 5] = [
        "terminated program cc1",
        "program cc1plus",
        "ninja: build stopped",
        "/bin/nvcc ",
        "compilation terminated",
    ];
    failure.innermost.is_none()
        && near.iter().any(|it| WORDS.iter().any(|word| it.text.contains(word)))
}

fn limit(lines: &[Line<'_>]) -> Option<Bytes> {
    kernels(lines).or_else(|| pods(lines)).or_else(|| dockers(lines))
}

/// `memory: usage 67108864kB, limit 67108864kB, failcnt 1422`: a container's, as the kernel tells it.
fn kernels(lines: &[Line<'_>]) -> Option<Bytes> {
    lines.iter().find_map(|line| {
        let (_, rest) = line.text.split_once("memory: usage ")?;
        after(&rest.to_ascii_lowercase(), "limit ")
    })
}

/// `Limits:` of `kubectl describe`, and `memory:` below it.
fn pods(lines: &[Line<'_>]) -> Option<Bytes> {
    let head = lines.iter().position(|it| it.text.trim() == "Limits:")?;
    let indent = indent(&lines[head].text);
    let below = lines[head + 1..].iter().take_while(|it| indent < self::indent(&it.text));
    below.map(|it| it.text.trim()).find_map(|it| size(it.strip_prefix("memory:")?.trim()))
}

/// `docker run -m 16g`.
fn dockers(lines: &[Line<'_>]) -> Option<Bytes> {
    let line = lines.iter().rfind(|line| {
        ["docker run", "podman run", "nerdctl run"].iter().any(|run| line.text.contains(run))
    })?;
    let mut words = line.text.split_whitespace();
    while let Some(word) = words.next() {
        if ["-m", "--memory"].contains(&word) {
            return size(words.next()?);
        }
        if let Some(it) = word.strip_prefix("--memory=") {
            return size(it);
        }
    }
    None
}

/// Slurm's account of a job that ran out, by the columns `MaxRSS` and `ReqMem`: (the most, what it was given).
fn job(lines: &[Line<'_>]) -> Option<(Option<Bytes>, Option<Bytes>)> {
    let head = lines.iter().position(|line| {
        let is_header = line.text.contains("State") && !line.text.contains('=');
        is_header && (line.text.contains("ReqMem") || line.text.contains("MaxRSS"))
    })?;
    let column = |name: &str| lines[head].text.find(name).map(|it| it + name.len());
    let (rss, wanted) = (column("MaxRSS"), column("ReqMem"));
    let rows = || lines[head + 1..].iter().take(NEAR).filter(|it| it.text.contains("OUT_OF_ME"));
    let most = |at: Option<usize>| rows().filter_map(|it| cell(&it.text, at?)).max();
    let found = (most(rss), most(wanted));
    (found != (None, None)).then_some(found)
}

/// The size that ends in the column `end`.
fn cell(row: &str, end: usize) -> Option<Bytes> {
    let head = row.get(..end)?;
    let word = head.rsplit(' ').next()?;
    // Before 2021 Slurm wrote whether that is for each node or each core.
    size(word.trim_end_matches(['n', 'c'])).filter(|it| Bytes::mib(1) <= *it)
}

fn size(text: &str) -> Option<Bytes> {
    let lower = text.to_ascii_lowercase();
    size_at(&lower).filter(|it| it.1 == lower.len()).map(|it| it.0)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Option<Bytes>, Option<Bytes>) {
        let lines: Vec<Line<'_>> = text
            .lines()
            .enumerate()
            .map(|(n, text)| Line { text: text.into(), number: n + 1, rank: None, pid: None })
            .collect();
        let mut failure =
            Failure { kind: Kind::HostOutOfMemory, backend: Backend::Host, ..Failure::default() };
        attach(&mut failure, &lines, 0);
        (failure.allocated, failure.limit)
    }

    #[test]
    fn limits_of_those_who_set_them() {
        for (text, allocated, limit) in [
            (
                "OOMKilled\n  Limits:\n    cpu: 4\n    memory:  96Gi\n  Requests:\n    memory: 1Gi",
                0,
                96,
            ),
            ("  Requests:\n    memory: 1Gi", 0, 0),
            ("memory: usage 8388608kB, limit 8388608kB, failcnt 3", 0, 8),
            ("$ docker run -m 16g lab/train python train.py\nKilled", 0, 16),
            ("$ docker run --memory=4g lab/train python train.py\nKilled", 0, 4),
            ("$ docker run lab/train python train.py -m 16g", 0, 16),
            (
                "JobID       State     MaxRSS  ReqMem\n-----  ---------- ---------- -------\n7  OUT_OF_ME+                   32Gn",
                0,
                32,
            ),
            (
                "JobID       State     MaxRSS  ReqMem\n7.0  OUT_OF_ME+     3145728K\n8.0  COMPLETED      9145728K",
                3,
                0,
            ),
        ] {
            let size = |it: u64| (it != 0).then(|| Bytes::gib(it));
            assert_eq!(of(text), (size(allocated), size(limit)), "{text}");
        }
    }
}
