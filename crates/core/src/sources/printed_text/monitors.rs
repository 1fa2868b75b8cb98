//! Tools that are not NVIDIA's own `nvidia-smi`: `nvitop`, DCGM, and AMD's `rocm-smi` and `amd-smi`.

use crate::{
    printed::{Kind, Levels, Printed, UsedBy},
    sources::{lines::Line, numbers::size_at, printed_text::rows::at_line},
    units::Bytes,
};

/// Rows that one table has at most.
const ROWS: usize = 4_000;

type Taken = Option<(Vec<Printed>, usize)>;

/// A size that is all of `text`.
fn size(text: &str) -> Option<Bytes> {
    let lower = text.trim().to_ascii_lowercase();
    size_at(&lower).filter(|it| it.1 == lower.len()).map(|it| it.0)
}

/// The device `index`, which is added if it is new.
fn of_device(all: &mut Vec<Printed>, kind: Kind, index: u32, line: usize) -> &mut Printed {
    let at = all.iter().position(|it| it.device == Some(index)).unwrap_or_else(|| {
        let mut it = Printed::new(kind, line);
        it.device = Some(index);
        all.push(it);
        all.len() - 1
    });
    &mut all[at]
}

/// `nvitop`, as it prints itself once: the frame of `nvidia-smi`, drawn, with sizes of any unit and a table of processes.
pub(super) fn nvitop(lines: &[Line<'_>]) -> Taken {
    if !lines.first()?.text.contains("NVITOP ") {
        return None;
    }
    let mut res: Vec<Printed> = Vec::new();
    let mut in_processes = false;
    let mut n = 1;
    while n < lines.len().min(ROWS) {
        let line = &lines[n];
        let row = line.text.trim();
        if !row.starts_with(['│', '├', '╞', '╘', '╒', '╰', '╭', '|', '+']) {
            break;
        }
        n += 1;
        let cells: Vec<&str> =
            row.trim_matches(['│', '|']).split(['│', '|']).map(str::trim).collect();
        if cells[0].starts_with("Processes:") {
            in_processes = true;
            for it in &mut res {
                it.lists_processes = true;
            }
        } else if in_processes {
            process(cells[0], &mut res);
        } else {
            device(&cells, line, &mut res);
        }
    }
    res.retain(|it| !it.levels.is_empty());
    (!res.is_empty()).then_some((res, n))
}

/// `0  A100-SXM4-80GB  On | 00000000:07:00.0 Off | 0`, and in the next row `78.12GiB / 80.00GiB`.
fn device(cells: &[&str], line: &Line<'_>, res: &mut Vec<Printed>) {
    let (number, rest) = cells[0].split_once(char::is_whitespace).unwrap_or((cells[0], ""));
    let is_bus = cells.get(1).is_some_and(|it| it.contains(':') && it.contains('.'));
    if let (Ok(index), true) = (number.parse::<u32>(), is_bus) {
        let rest = rest.trim();
        let modes = ["On", "Off", "N/A"];
        let name = modes.iter().find_map(|it| rest.strip_suffix(it)).unwrap_or(rest).trim();
        of_device(res, Kind::Nvitop, index, line.number).card = Some(name.to_owned());
    }
    let used = cells.iter().skip(1).find_map(|cell| {
        let (used, total) = cell.split_once(" / ")?;
        Some((size(used)?, size(total)?))
    });
    if let (Some((used, total)), Some(last)) = (used, res.last_mut()) {
        last.levels.push(Levels { used: Some(used), total: Some(total), ..at_line(line) });
    }
}

/// `0   88121 C     lea 41.07GiB  55  101.9   3.1   2:11:08  python train.py`
fn process(row: &str, res: &mut [Printed]) {
    let words: Vec<&str> = row.split_whitespace().collect();
    let [index, pid, kind, user, bytes, ..] = words[..] else { return };
    let (Ok(index), Ok(pid)) = (index.parse::<u32>(), pid.parse()) else { return };
    let time = words.iter().skip(5).position(|it| it.contains(':') || it.ends_with("days"));
    let command = time.map_or(String::new(), |it| words[5 + it + 1..].join(" "));
    let name = if command.is_empty() { user.to_owned() } else { format!("{user}:{command}") };
    let it = UsedBy { pid: Some(pid), name, bytes: size(bytes), is_graphics: kind == "G" };
    if let Some(device) = res.iter_mut().find(|it| it.device == Some(index)) {
        device.processes.push(it);
    }
}

/// `rocm-smi --showmeminfo vram`: `GPU[0] : VRAM Total Memory (B): 25753026560`.
pub(super) fn rocm_memory(lines: &[Line<'_>]) -> Taken {
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 0;
    while let Some(line) = lines.get(n).filter(|_| n < ROWS) {
        let Some((index, is_used, bytes)) = rocm_row(&line.text) else { break };
        let it = of_device(&mut res, Kind::RocmSmi, index, line.number);
        if it.levels.is_empty() {
            it.levels.push(at_line(line));
        }
        if let Some(levels) = it.levels.last_mut() {
            *if is_used { &mut levels.used } else { &mut levels.total } = Some(bytes);
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// (device, whether it is what is used, the size).
fn rocm_row(text: &str) -> Option<(u32, bool, Bytes)> {
    let (index, rest) = text.trim().strip_prefix("GPU[")?.split_once(']')?;
    let (_, rest) = rest.split_once("VRAM Total ")?;
    let is_used = rest.starts_with("Used Memory (B)");
    let (_, bytes) = rest.split_once("Memory (B):")?;
    Some((index.parse().ok()?, is_used, Bytes(bytes.trim().parse().ok()?)))
}

/// `rocm-smi`: a column `VRAM%` (`GPU VRAM%` before) among others, no sizes.
pub(super) fn rocm(lines: &[Line<'_>]) -> Taken {
    let header = &lines.first()?.text;
    let first = header.split_whitespace().next()?;
    let from_end = header.split_whitespace().rev().position(|it| it == "VRAM%")?;
    if !["Device", "GPU", "GPU[DID]"].contains(&first) || header.contains("VRAM_TOTAL") {
        return None;
    }
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 1;
    while let Some(line) = lines.get(n).filter(|_| n < ROWS) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let index = words.first().and_then(|it| it.parse().ok());
        let percent =
            words.iter().rev().nth(from_end).and_then(|it| it.strip_suffix('%')?.parse().ok());
        if let (Some(index), Some(percent)) = (index, percent) {
            let it = of_device(&mut res, Kind::RocmSmi, index, line.number);
            it.levels.push(Levels { used_percent: Some(percent), ..at_line(line) });
        } else if line.text.contains("End of ROCm")
            || !res.is_empty() && !line.text.starts_with('=')
        {
            break;
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// `amd-smi monitor -v`: columns by name, sizes with a unit that is a word of its own; or `26.1/191.7 GB` in one column.
pub(super) fn amd(lines: &[Line<'_>]) -> Taken {
    let header: Vec<&str> = lines.first()?.text.split_whitespace().collect();
    let is_one = header.iter().any(|it| ["VRAM_USED", "VRAM_USAGE"].contains(it));
    if header.first() != Some(&"GPU") || !is_one {
        return None;
    }
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 1;
    while let Some(line) = lines.get(n).filter(|_| n < ROWS) {
        let cells = with_units(&line.text);
        let Some(index) = cells.first().and_then(|it| it.parse().ok()) else { break };
        let of = |name: &str| {
            let at = header.iter().position(|it| *it == name)?;
            (cells.len() == header.len()).then(|| size(&cells[at])).flatten()
        };
        let usage = cells.iter().find_map(|cell| {
            let (used, rest) = cell.split_once('/')?;
            let unit = rest.trim_start_matches(|it: char| it.is_ascii_digit() || it == '.');
            Some((size(&format!("{used} {}", unit.trim()))?, size(rest)?))
        });
        let (used, total) = usage.unzip();
        let levels = Levels {
            used: used.or_else(|| of("VRAM_USED")),
            total: total.or_else(|| of("VRAM_TOTAL")),
            free: of("VRAM_FREE"),
            ..at_line(line)
        };
        if !levels.is_empty() {
            of_device(&mut res, Kind::AmdSmi, index, line.number).levels.push(levels);
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// The cells of a row, a unit with its number.
fn with_units(row: &str) -> Vec<String> {
    const UNITS: [&str; 12] =
        ["MB", "GB", "MiB", "GiB", "W", "%", "MHz", "°C", "C", "V", "mV", "KB"];
    let mut res: Vec<String> = Vec::new();
    for word in row.split_whitespace() {
        match res.last_mut() {
            Some(last) if UNITS.contains(&word) => *last += &format!(" {word}"),
            _ => res.push(word.to_owned()),
        }
    }
    res
}

/// `dcgmi dmon -e 252,251`: a row for each device and moment, columns by short names.
pub(super) fn dcgm(lines: &[Line<'_>]) -> Taken {
    let header: Vec<&str> =
        lines.first()?.text.trim().strip_prefix('#')?.split_whitespace().collect();
    let column = |name: &str| header.iter().position(|it| *it == name);
    let (used, free, total) = (column("FBUSD"), column("FBFRE"), column("FBTTL"));
    used.or(free)?;
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 1;
    while let Some(line) = lines.get(n).filter(|_| n < ROWS) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        // `Entity` is two words below: `GPU 0`.
        if let (["GPU", index, ..], true) = (&words[..], words.len() == header.len() + 1) {
            let size =
                |at: Option<usize>| at.and_then(|it| words[it + 1].parse().ok()).map(Bytes::mib);
            let levels =
                Levels { used: size(used), free: size(free), total: size(total), ..at_line(line) };
            if let Ok(index) = index.parse() {
                of_device(&mut res, Kind::Dcgm, index, line.number).levels.push(levels);
            }
        } else if !line.text.trim().is_empty() && words != ["ID"] && !line.text.starts_with('#') {
            break;
        }
        n += 1;
    }
    (!res.is_empty()).then_some((res, n))
}

/// What DCGM's exporter tells Prometheus: `DCGM_FI_DEV_FB_USED{gpu="0",modelName="Tesla T4"} 14804`.
pub(super) fn metrics(lines: &[Line<'_>]) -> Taken {
    let mut res: Vec<Printed> = Vec::new();
    let mut n = 0;
    while let Some(line) = lines.get(n).filter(|_| n < ROWS) {
        let text = line.text.trim();
        if let Some(metric) = Metric::of(text) {
            let it = of_device(&mut res, Kind::Dcgm, metric.gpu, line.number);
            it.card = it.card.take().or(metric.card);
            if it.levels.is_empty() {
                it.levels.push(at_line(line));
            }
            if let Some(levels) = it.levels.last_mut() {
                *match metric.name {
                    "FREE" => &mut levels.free,
                    "TOTAL" => &mut levels.total,
                    _ => &mut levels.used,
                } = Some(metric.bytes);
            }
        } else if !text.starts_with("DCGM_FI_")
            && !text.starts_with("# HELP")
            && !text.starts_with("# TYPE")
        {
            break;
        }
        n += 1;
    }
    res.retain(|it| !it.levels.is_empty());
    (!res.is_empty()).then_some((res, n))
}

struct Metric<'a> {
    name: &'a str,
    gpu: u32,
    card: Option<String>,
    bytes: Bytes,
}

impl Metric<'_> {
    fn of(text: &str) -> Option<Metric<'_>> {
        let (name, rest) = text.strip_prefix("DCGM_FI_DEV_FB_")?.split_once('{')?;
        let (labels, value) = rest.rsplit_once('}')?;
        let label = |key: &str| {
            let (_, it) = labels.split_once(&format!("{key}=\""))?;
            Some(it.split_once('"')?.0)
        };
        // A value may have a time behind it, or a point.
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        let is_size = (0.0..1e9).contains(&value) && ["USED", "FREE", "TOTAL"].contains(&name);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole MiB in a range that was just looked at"
        )]
        let bytes = Bytes::mib(value as u64);
        is_size.then_some(Metric {
            name,
            gpu: label("gpu")?.parse().ok()?,
            card: label("modelName").map(str::to_owned),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (device, used, total or free), in MiB.
    fn of(read: fn(&[Line<'_>]) -> Taken, text: &str) -> Vec<(u32, u64, u64)> {
        let lines: Vec<Line<'_>> = text
            .lines()
            .enumerate()
            .map(|(n, text)| Line { text: text.into(), number: n + 1, rank: None, pid: None })
            .collect();
        let found = read(&lines).map(|it| it.0).unwrap_or_default();
        let mib = |it: Option<Bytes>| it.map_or(0, |it| it.0 >> 20);
        let of = |it: &Printed| {
            let last = it.levels.last().unwrap();
            (it.device.unwrap(), mib(last.used), mib(last.total.or(last.free)))
        };
        found.iter().map(of).collect()
    }

    #[test]
    fn tables_of_other_tools() {
        let two = vec![(0, 3, 16), (1, 12, 16)];
        assert_eq!(
            of(
                nvitop,
                "│ NVITOP 1.3.2 │\n│   0  GeForce RTX 3090 Off │ 00000000:01:00.0 Off │ N/A │\n│ 61% │ 3MiB / 16MiB │ 98% │\n\
                 │   1  GeForce RTX 3090 Off │ 00000000:02:00.0 Off │ N/A │\n│ 61% │ 12.0MiB / 16MiB │ 98% │",
            ),
            two
        );
        assert_eq!(
            of(
                rocm_memory,
                "GPU[0]\t\t: VRAM Total Memory (B): 16777216\nGPU[0]\t\t: VRAM Total Used Memory (B): 3145728\n\
                 GPU[1]\t\t: VRAM Total Memory (B): 16777216\nGPU[1]\t\t: VRAM Total Used Memory (B): 12582912",
            ),
            two
        );
        assert_eq!(of(amd, "GPU  VRAM_USED  VRAM_TOTAL\n 0  3 MB  16 MB\n 1  12 MB  16 MB"), two);
        assert_eq!(
            of(amd, "GPU  POWER  VRAM_USAGE\n 0  70 W  3.0/16.0 MB\n 1  71 W  12.0/16.0 MB"),
            two
        );
        assert_eq!(of(dcgm, "#Entity GPUTL FBUSD FBFRE\nID\nGPU 0 98 3 16\nGPU 1 97 12 16\n"), two);
        assert_eq!(
            of(
                metrics,
                "DCGM_FI_DEV_FB_FREE{gpu=\"0\"} 16\nDCGM_FI_DEV_FB_FREE{gpu=\"1\"} 16\n# HELP x\n\
                 DCGM_FI_DEV_FB_USED{gpu=\"0\"} 3\nDCGM_FI_DEV_FB_USED{gpu=\"1\"} 12 1700000000",
            ),
            two
        );
        for text in
            ["# python train.py", "GPU 0 is used", "Device VRAM%", "DCGM_FI_DEV_FB_USED{gpu"]
        {
            for read in [nvitop, rocm_memory, rocm, amd, dcgm, metrics] {
                assert_eq!(of(read, text), [], "{text}");
            }
        }
    }
}
