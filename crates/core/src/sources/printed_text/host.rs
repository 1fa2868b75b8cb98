//! What the host's own tools say of its memory: `free` and `df`.

use crate::{
    printed::{Kind, Printed},
    sources::{lines::Line, numbers::size_at},
    units::Bytes,
};

/// Less in the swap file is what nobody has used for long.
const NOTABLE: Bytes = Bytes::gib(1);

type Taken = Option<(Vec<Printed>, usize)>;

/// `free -h`: a header, then `Mem:` and `Swap:`. Without a unit the numbers are KiB, or MiB with `-m`.
pub(super) fn free(lines: &[Line<'_>]) -> Taken {
    let header: Vec<&str> = lines.first()?.text.split_whitespace().collect();
    if header.first() != Some(&"total") || !header.contains(&"available") {
        return None;
    }
    let available = header.iter().position(|it| *it == "available")? + 1;
    let mut it = Printed::new(Kind::Host, lines[0].number);
    let mut unit = Bytes::kib(1);
    let mut n = 1;
    while let Some(row) = lines.get(n).filter(|_| n < 4) {
        let words: Vec<String> = row.text.split_whitespace().map(str::to_ascii_lowercase).collect();
        let number = |at: usize| size_at(words.get(at)?).map(|it| it.0);
        let is_bare =
            |at: usize| words.get(at).is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit()));
        match words.first().map(String::as_str) {
            Some("mem:") => {
                let (total, left) = (number(1)?, number(available)?);
                // No machine that trains has less than 2 million KiB, and none as many MiB.
                if is_bare(1) && total.0 < 2_000_000 {
                    unit = Bytes::mib(1);
                }
                let used = total.saturating_sub(left).0.saturating_mul(100);
                it.host_percent = u32::try_from(used / total.0.max(1)).ok();
            }
            Some("swap:") => {
                let used = number(2)?;
                let used = if is_bare(2) { unit * used.0 } else { used };
                it.swap = Some(used).filter(|it| NOTABLE <= *it);
            }
            _ => break,
        }
        n += 1;
    }
    it.host_percent?;
    Some((vec![it], n))
}

/// `df -h /dev/shm`: the row of it.
pub(super) fn df(lines: &[Line<'_>]) -> Taken {
    let line = lines.first()?;
    let words: Vec<&str> = line.text.split_whitespace().collect();
    let [.., total, _, _, percent, "/dev/shm"] = words[..] else { return None };
    let percent: u32 = percent.strip_suffix('%')?.parse().ok()?;
    let mut it = Printed::new(Kind::Host, line.number);
    it.full_shm = size_at(&total.to_ascii_lowercase()).map(|it| it.0).filter(|_| 90 <= percent);
    Some((vec![it], 1))
}
