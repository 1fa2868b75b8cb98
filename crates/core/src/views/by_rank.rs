//! The ranks of a job beside each other, for a terminal.

use std::fmt::{self, Formatter};

use crate::{prediction::Rank, views::style::Styles};

/// Rows that are shown; of more ranks, the ones that need most.
const SHOWN: usize = 16;

/// One row for each rank, in their order; nothing for a single one.
pub(super) fn table(f: &mut Formatter<'_>, ranks: &[Rank], styles: Styles) -> fmt::Result {
    if ranks.len() < 2 {
        return Ok(());
    }
    let mut shown: Vec<&Rank> = ranks.iter().collect();
    shown.sort_by_key(|it| (std::cmp::Reverse(it.peak.device), it.rank, it.device, it.pid));
    let n_hidden = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    shown.sort_by_key(|it| (it.rank, it.device, it.pid));
    writeln!(f, "\n{}", styles.heading.of("By rank"))?;
    writeln!(f, "  rank  device    allocated     reserved   on the GPU")?;
    for it in shown {
        let rank = it.rank.map_or_else(|| "-".to_owned(), |it| it.to_string());
        // A width is a matter of text, and sizes are not text yet.
        let [allocated, reserved, device] =
            [it.peak.allocated, it.peak.reserved, it.peak.device].map(|it| it.to_string());
        writeln!(f, "  {rank:<4}  {:<6} {allocated:>12} {reserved:>12} {device:>12}", it.device)?;
    }
    match n_hidden {
        0 => Ok(()),
        1 => writeln!(f, "  and 1 other rank, which needs no more"),
        n => writeln!(f, "  and {n} other ranks, which need no more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{prediction::Peaks, units::Bytes};

    fn rank(rank: u32, gib: u64) -> Rank {
        let size = Bytes(gib << 30);
        let peak = Peaks { allocated: size, reserved: size, device: size };
        Rank { pid: 100 + rank, rank: Some(rank), device: 0, peak }
    }

    fn text(ranks: &[Rank]) -> String {
        fmt::from_fn(|f| table(f, ranks, Styles::default())).to_string()
    }

    #[test]
    fn one_rank_needs_no_table() {
        assert_eq!(text(&[rank(0, 4)]), "");
    }

    #[test]
    fn ranks_are_in_their_order() {
        let expected = "
By rank
  rank  device    allocated     reserved   on the GPU
  0     0          4.00 GiB     4.00 GiB     4.00 GiB
  1     0          3.00 GiB     3.00 GiB     3.00 GiB
";
        assert_eq!(text(&[rank(1, 3), rank(0, 4)]), expected);
    }

    #[test]
    fn of_many_the_neediest_are_shown() {
        let ranks: Vec<Rank> = (0..20).map(|it| rank(it, it.into())).collect();
        let text = text(&ranks);
        assert!(!text.contains("\n  3  ") && text.contains("\n  4  "));
        assert!(text.ends_with("  and 4 other ranks, which need no more\n"));
    }
}
