//! What the driver's tools print: `nvidia-smi` in its four ways, and `gpustat`.

use crate::{
    printed::{Kind, Levels, Printed, UsedBy},
    sources::{
        lines::Line,
        numbers::size_at,
        printed_text::rows::{at_line, framed},
    },
    units::Bytes,
};

/// Rows that one table has at most.
const ROWS: usize = 4_000;

type Taken = Option<(Vec<Printed>, usize)>;

fn mib(text: &str) -> Option<Bytes> {
    let number = text.trim().strip_suffix("MiB").or_else(|| text.trim().strip_suffix("MB"))?;
    number.trim().parse::<u64>().ok().filter(|it| *it < 1 << 40).map(Bytes::mib)
}

/// The table that `nvidia-smi` prints.
pub(super) fn table(lines: &[Line<'_>]) -> Taken {
    let first = framed(lines.first()?)?;
    if !first.contains("NVIDIA-SMI") {
        return None;
    }
    let mut res: Vec<Printed> = Vec::new();
    let mut in_processes = false;
    let mut in_slices = false;
    let mut blanks = 0;
    let mut n = 1;
    while n < lines.len().min(ROWS) {
        let line = &lines[n];
        let Some(row) = framed(line) else {
            blanks += 1;
            if !line.text.trim().is_empty() || 3 < blanks {
                break;
            }
            n += 1;
            continue;
        };
        blanks = 0;
        if row.contains("NVIDIA-SMI") {
            break;
        }
        if row.contains("Processes:") {
            in_processes = true;
            for it in &mut res {
                it.lists_processes = true;
            }
        } else if row.contains("MIG devices:") {
            in_slices = true;
        } else if in_processes {
            process(row, &mut res);
        } else if in_slices {
            slice(row, line, &mut res);
        } else {
            device(row, line, &mut res);
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// `|   0  NVIDIA L4   Off | 00000000:01:00.0 Off |`, and in the next row `|  7MiB / 23034MiB |`.
fn device(row: &str, line: &Line<'_>, res: &mut Vec<Printed>) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let first = cells.first().copied().unwrap_or_default();
    let (number, rest) = first.split_once(char::is_whitespace).unwrap_or((first, ""));
    let is_bus = cells.get(1).is_some_and(|it| it.contains(':') && !it.contains('/'));
    if let (Ok(index), true) = (number.parse::<u32>(), is_bus) {
        let mut it = Printed::new(Kind::Smi, line.number);
        it.device = Some(index);
        let rest = rest.trim();
        let modes = ["On", "Off", "N/A", "WDDM", "TCC", "MCDM"];
        let name = modes.iter().find_map(|mode| rest.strip_suffix(mode)).unwrap_or(rest).trim();
        it.card = Some(name.to_owned());
        res.push(it);
    }
    let Some(last) = res.last_mut() else { return };
    let used = cells.iter().find_map(|cell| {
        let (used, total) = cell.split_once('/')?;
        Some((mib(used)?, mib(total)?))
    });
    if let Some((used, total)) = used.filter(|_| last.levels.is_empty()) {
        last.levels.push(Levels { used: Some(used), total: Some(total), ..at_line(line) });
    }
}

/// `|  0    1   0   0  |  19574MiB / 19968MiB  | 42  0 |`: a part of a card.
fn slice(row: &str, line: &Line<'_>, res: &mut Vec<Printed>) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let (Some(of), Some(memory)) = (cells.first(), cells.get(1)) else { return };
    let numbers: Vec<u32> = of.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    if let ([device, _, _, _], Some((used, total))) = (&numbers[..], memory.split_once('/')) {
        let mut it = Printed::new(Kind::Smi, line.number);
        it.device = Some(*device);
        it.levels.push(Levels { used: mib(used), total: mib(total), ..at_line(line) });
        res.push(it);
    }
}

/// `|    0   N/A  N/A    81734      C   python    23540MiB |`, and without the two columns of instances.
fn process(row: &str, res: &mut [Printed]) {
    let words: Vec<&str> = row.trim_matches('|').split_whitespace().collect();
    let Some(index) = words.first().and_then(|it| it.parse::<u32>().ok()) else { return };
    let types = ["C", "G", "C+G", "M+C", "M"];
    let Some(at) = words.iter().skip(1).position(|it| types.contains(it)).map(|it| it + 1) else {
        return;
    };
    let (Some(pid), Some((size, name))) =
        (words[at - 1].parse().ok(), words.get(at + 1..).and_then(<[&str]>::split_last))
    else {
        return;
    };
    let it = UsedBy {
        pid: Some(pid),
        name: name.join(" "),
        bytes: mib(size),
        is_graphics: words[at] == "G",
    };
    if let Some(device) = res.iter_mut().find(|it| it.device == Some(index)) {
        device.processes.push(it);
    }
}

/// `nvidia-smi -q`, whole or what `-d MEMORY` leaves of it.
pub(super) fn long(lines: &[Line<'_>]) -> Taken {
    let begins = |it: &str| it.trim() == "FB Memory Usage" || is_gpu(it);
    if !begins(&lines.first()?.text) {
        return None;
    }
    let mut res: Vec<Printed> = Vec::new();
    let mut section = "";
    let mut n = 0;
    while n < lines.len().min(ROWS) {
        let line = &lines[n];
        let text: &str = line.text.trim();
        let (key, value) =
            text.split_once(" : ").map_or((text, ""), |(key, it)| (key.trim(), it.trim()));
        if is_gpu(text) || res.is_empty() {
            let mut it = Printed::new(Kind::SmiLong, line.number);
            it.device = u32::try_from(res.len()).ok();
            res.push(it);
        }
        let Some(last) = res.last_mut() else { break };
        match (key, value) {
            ("Product Name", name) => last.card = Some(name.to_owned()),
            ("Processes", "None") => last.lists_processes = true,
            (title, "") => section = title,
            (_, value) if section == "FB Memory Usage" => memory(key, value, line, last),
            ("Process ID", pid) => {
                last.lists_processes = true;
                let pid = pid.parse().ok();
                last.processes.push(UsedBy {
                    pid,
                    name: String::new(),
                    bytes: None,
                    is_graphics: false,
                });
            }
            ("Type", kind) => {
                if let Some(it) = last.processes.last_mut() {
                    it.is_graphics = kind == "G";
                }
            }
            ("Name", name) => {
                if let Some(it) = last.processes.last_mut() {
                    name.clone_into(&mut it.name);
                }
            }
            ("Used GPU Memory", size) => {
                if let Some(it) = last.processes.last_mut() {
                    it.bytes = mib(size);
                }
            }
            _ => {}
        }
        n += 1;
        let ends = lines.get(n).is_some_and(|line| {
            let text = line.text.trim();
            !text.is_empty()
                && !text.contains(" : ")
                && !line.text.starts_with([' ', '\t'])
                && !is_gpu(text)
        });
        if ends {
            break;
        }
    }
    res.retain(|it| !it.levels.is_empty());
    (!res.is_empty()).then_some((res, n))
}

fn is_gpu(text: &str) -> bool {
    text.trim()
        .strip_prefix("GPU ")
        .is_some_and(|it| it.len() <= 20 && it.matches(':').count() == 2)
}

fn memory(key: &str, value: &str, line: &Line<'_>, last: &mut Printed) {
    let Some(bytes) = mib(value) else { return };
    if last.levels.is_empty() {
        last.levels.push(at_line(line));
    }
    let Some(levels) = last.levels.last_mut() else { return };
    match key {
        "Total" => levels.total = Some(bytes),
        "Used" => levels.used = Some(bytes),
        "Free" => levels.free = Some(bytes),
        _ => {}
    }
}

/// `nvidia-smi dmon`: columns by name, rows by device; and `pmon`, whose rows are processes.
pub(super) fn monitor(lines: &[Line<'_>]) -> Taken {
    let header: Vec<String> = {
        let text = lines.first()?.text.trim();
        let text = text.strip_prefix('#')?;
        text.split_whitespace().map(str::to_ascii_lowercase).collect()
    };
    let gpu = header.iter().position(|it| it == "gpu")?;
    let fb = header.iter().position(|it| it == "fb")?;
    let pid = header.iter().position(|it| it == "pid");
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 1;
    while n < lines.len().min(ROWS) {
        let text = lines[n].text.trim();
        n += 1;
        if text.starts_with('#') || text.is_empty() {
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        // A card without a process has a row of dashes.
        if pid.is_some_and(|it| words.get(it) == Some(&"-")) {
            continue;
        }
        let (Some(Ok(index)), Some(Ok(used))) =
            (words.get(gpu).map(|it| it.parse::<u32>()), words.get(fb).map(|it| it.parse::<u64>()))
        else {
            n -= 1;
            break;
        };
        let used = Bytes::mib(used.min(1 << 30));
        if let Some(pid) = pid {
            let it = UsedBy {
                pid: words.get(pid).and_then(|it| it.parse().ok()),
                name: words.last().copied().unwrap_or_default().to_owned(),
                bytes: Some(used),
                is_graphics: words.contains(&"G"),
            };
            add_process(&mut res, index, lines[n - 1].number, it);
            continue;
        }
        let levels = Levels { used: Some(used), ..at_line(&lines[n - 1]) };
        push(&mut res, Kind::Dmon, Some(index), levels);
    }
    (!res.is_empty()).then_some((res, n))
}

/// A process of the device `index`; `pmon` names it again each second.
fn add_process(res: &mut Vec<Printed>, index: u32, line: usize, process: UsedBy) {
    if !res.iter().any(|it| it.device == Some(index)) {
        let mut it = Printed::new(Kind::Smi, line);
        (it.device, it.lists_processes) = (Some(index), true);
        res.push(it);
    }
    for it in res.iter_mut().filter(|it| it.device == Some(index)) {
        match it.processes.iter_mut().find(|it| it.pid == process.pid) {
            Some(known) => known.bytes = process.bytes,
            None => it.processes.push(process.clone()),
        }
    }
}

fn push(res: &mut Vec<Printed>, kind: Kind, device: Option<u32>, levels: Levels) {
    match res.iter_mut().find(|it| it.device == device) {
        Some(it) => it.levels.push(levels),
        None => {
            let mut it = Printed::new(kind, levels.line);
            it.device = device;
            it.levels.push(levels);
            res.push(it);
        }
    }
}

/// `nvidia-smi --query-gpu=...` and `--query-compute-apps=...` as CSV.
pub(super) fn csv(lines: &[Line<'_>]) -> Taken {
    let first: &str = &lines.first()?.text;
    let (fields, from) = header(first).map(|it| (it, 1)).or_else(|| {
        let fields = first.split("--query-").nth(1)?.split_once('=')?.1;
        let fields = fields.split_whitespace().next()?;
        let is_bare = first.contains("noheader");
        is_bare.then(|| (fields.split(',').map(str::to_owned).collect(), 1))
    })?;
    let column = |names: &[&str]| fields.iter().position(|it| names.contains(&it.as_str()));
    let (used, total, free) =
        (column(&["memory.used"]), column(&["memory.total"]), column(&["memory.free"]));
    let (index, name) = (column(&["index", "gpu_index"]), column(&["name", "gpu_name"]));
    let pid = column(&["pid"]);
    let of_process = column(&["used_gpu_memory", "used_memory"]);
    let process_name = column(&["process_name"]);
    let mut res: Vec<Printed> = Vec::new();
    let mut n = from;
    while n < lines.len().min(ROWS) {
        let cells: Vec<&str> = lines[n].text.split(',').map(str::trim).collect();
        if cells.len() != fields.len() {
            break;
        }
        let cell = |at: Option<usize>| at.and_then(|it| cells.get(it)).copied();
        let size = |at: Option<usize>| {
            let text = cell(at)?;
            mib(text)
                .or_else(|| text.parse::<u64>().ok().filter(|it| *it < 1 << 30).map(Bytes::mib))
        };
        let device = cell(index).and_then(|it| it.parse().ok());
        if let Some(bytes) = size(of_process) {
            if res.is_empty() {
                res.push(Printed {
                    lists_processes: true,
                    ..Printed::new(Kind::SmiCsv, lines[n].number)
                });
            }
            res[0].processes.push(UsedBy {
                pid: cell(pid).and_then(|it| it.parse().ok()),
                name: cell(process_name).unwrap_or_default().to_owned(),
                bytes: Some(bytes),
                is_graphics: false,
            });
        } else {
            let levels = Levels {
                used: size(used),
                total: size(total),
                free: size(free),
                ..at_line(&lines[n])
            };
            if levels.is_empty() {
                break;
            }
            push(&mut res, Kind::SmiCsv, device, levels);
            if let Some(it) = res.iter_mut().find(|it| it.device == device) {
                it.card = it.card.take().or_else(|| cell(name).map(str::to_owned));
            }
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// Names of columns, without units.
fn header(line: &str) -> Option<Vec<String>> {
    let plain = |it: &str| it.split('[').next().unwrap_or_default().trim().to_ascii_lowercase();
    let names: Vec<String> = line.split(',').map(plain).collect();
    let known = ["memory.used", "memory.free", "used_gpu_memory", "used_memory"];
    let is_one = names.iter().any(|it| known.contains(&it.as_str()));
    (is_one && names.iter().all(|it| !it.contains(' '))).then_some(names)
}

/// `[0] NVIDIA RTX A6000 | 71'C,  99 % | 47120 / 49140 MB | chen:python/40211(30310M)`
pub(super) fn gpustat(lines: &[Line<'_>]) -> Taken {
    let mut res = Vec::new();
    let mut n = 0;
    while let Some(it) = lines.get(n).and_then(|it| gpustats(it)) {
        res.push(it);
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

fn gpustats(line: &Line<'_>) -> Option<Printed> {
    let (index, rest) = line.text.trim().strip_prefix('[')?.split_once(']')?;
    let mut cells = rest.split('|');
    let name = cells.next()?.trim();
    let (used, total) = cells.find_map(|cell| {
        let (used, total) = cell.trim().strip_suffix("MB")?.split_once('/')?;
        Some((used.trim().parse::<u64>().ok()?, total.trim().parse::<u64>().ok()?))
    })?;
    let mut res = Printed::new(Kind::Gpustat, line.number);
    res.device = Some(index.trim().parse().ok()?);
    res.card = Some(name.to_owned());
    res.lists_processes = false;
    let size = |it: u64| Some(Bytes::mib(it.min(1 << 30)));
    res.levels.push(Levels { used: size(used), total: size(total), ..at_line(line) });
    for word in cells.next().unwrap_or_default().split_whitespace() {
        let Some((name, size)) = word.strip_suffix(')').and_then(|it| it.rsplit_once('(')) else {
            continue;
        };
        let (name, pid) = name.rsplit_once('/').unwrap_or((name, ""));
        let bytes = size_at(&size.to_ascii_lowercase()).map(|it| it.0);
        res.processes.push(UsedBy {
            pid: pid.parse().ok(),
            name: name.to_owned(),
            bytes,
            is_graphics: false,
        });
    }
    Some(res)
}
