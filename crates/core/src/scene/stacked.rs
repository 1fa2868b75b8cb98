//! The order in which a picture stacks blocks, which does not depend on how closely one looks: what is too
//! small to be drawn alone always lies at the top of its group.

use crate::{
    scene::{Grouping, LifeId, Position, Scene, lives::Life},
    units::Bytes,
};

/// Of blocks this much smaller than the peak, those of the next class are stacked on the larger ones.
const CLASSES: [u64; 2] = [1 << 12, 1 << 18];

/// A block at a moment, from the bottom to the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Which; none for what a private pool holds beside its blocks.
    pub life: Option<LifeId>,
    /// Its size.
    pub size: Bytes,
    /// Its group.
    pub group: u8,
}

/// Where a block stands among others of its group: larger classes first, then by age.
pub(super) fn class(size: Bytes, peak: Bytes) -> u8 {
    let is_in = |it: &&u64| peak.0 <= size.0.saturating_mul(**it);
    let at = CLASSES.iter().position(|it| is_in(&it)).unwrap_or(CLASSES.len());
    u8::try_from(at).unwrap_or(u8::MAX)
}

/// The smallest size of which all blocks are of classes that can be seen where `least` can.
pub(super) fn floor(least: Bytes, peak: Bytes) -> Bytes {
    let bounds = CLASSES.map(|it| Bytes(peak.0.div_ceil(it)));
    if peak < least {
        return least;
    }
    bounds.into_iter().find(|it| *it <= least).unwrap_or(Bytes::ZERO)
}

impl Scene<'_> {
    /// What was live at `position`, from the bottom of a picture to its top.
    pub fn layers(&self, position: Position, grouping: Grouping) -> Vec<Layer> {
        let position = position.min(self.end() - 1);
        let peak = self.levels.allocated(self.levels.peak);
        let mut lives: Vec<Life> = Vec::new();
        self.lives.overlapping((position, position + 1), grouping, |it| lives.push(it));
        lives.sort_unstable_by_key(|it| (it.group, class(it.size, peak), it.id));
        let mut res: Vec<Layer> = lives
            .iter()
            .map(|it| Layer { life: Some(it.id), size: it.size, group: it.group })
            .collect();
        if grouping == Grouping::Pool {
            for (group, own, held) in self.groups.pools.held_at(position) {
                let of_own = lives.iter().filter(|it| usize::from(it.group) == own);
                let used: Bytes = of_own.map(|it| it.size).sum();
                let group = u8::try_from(group).unwrap_or(u8::MAX);
                let size = held.saturating_sub(used);
                if size != Bytes::ZERO {
                    let at = res.partition_point(|it| it.group < group);
                    res.insert(at, Layer { life: None, size, group });
                }
            }
        }
        res
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_alone_is_whole_classes() {
        let peak = Bytes::gib(8);
        for least in [1, 100, 5000, 1 << 20, 1 << 24, 1 << 33].map(Bytes) {
            let floor = floor(least, peak);
            assert!(floor <= least);
            let below = floor.saturating_sub(Bytes(1));
            assert!(floor == Bytes::ZERO || class(below, peak) != class(floor, peak));
        }
        assert_eq!(floor(Bytes(1 << 60), peak), Bytes(1 << 60), "nothing is asked for alone");
    }
}
