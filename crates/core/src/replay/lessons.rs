//! What a recording teaches about itself: it is followed again with what only its end, or a contradiction,
//! could tell.

use std::collections::BTreeMap;

use crate::{
    replay::{Config, Program, Replay, checked::follower, recorded::Goal},
    trace::{DeviceTrace, PoolId},
};

/// How often a recording is followed again with what was learned about its private pools.
const MOST_LESSONS: usize = 24;

/// How many events are followed again in all: a long recording is followed again less often, and one that is
/// longer than this never.
const MOST_EVENTS_AGAIN: usize = 3_000_000;

/// Follows `device`, more than once where it teaches something that its beginning would have needed: above
/// which level garbage is collected, which no recording says; and which segments were private pools' that
/// were gone in the end, which none says before torch 2.12.
pub(super) fn run(device: &DeviceTrace, config: &Config, handles: &[u64]) -> (Replay, Program) {
    let mut lesson = Lesson::default();
    let mut best = attempt(device, config, handles, &lesson);
    let n_lessons = MOST_LESSONS.min(MOST_EVENTS_AGAIN / device.events.len().max(1));
    for _ in 0..n_lessons {
        let known = Lesson { goal: best.2.goal, ..lesson.clone() };
        let mut next = known.clone();
        if !device.events.names_pools() {
            next.learn(&best.2.contradictions);
        }
        if next == lesson {
            break;
        }
        let again = attempt(device, config, handles, &next);
        if best.0.n_mismatches < again.0.n_mismatches {
            break;
        }
        (best, lesson) = (again, next);
    }
    (best.0, best.1)
}

/// What a recording teaches about itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct Lesson {
    goal: Option<Goal>,
    /// The private pools of segments, by the events that made them.
    pools: BTreeMap<usize, PoolId>,
}

/// What was learned from following it once.
struct Taught {
    goal: Option<Goal>,
    contradictions: Vec<Vec<usize>>,
}

impl Lesson {
    /// Each group is a pool's; a segment that is known to be one's takes its group along. The first one of
    /// several and the first single one are learned: what follows may follow from them.
    fn learn(&mut self, groups: &[Vec<usize>]) {
        let several = groups.iter().find(|it| 1 < it.len());
        let single = groups.iter().find(|it| it.len() == 1);
        for group in several.into_iter().chain(single) {
            let known = group.iter().find_map(|it| self.pools.get(it)).copied();
            let pool = known.unwrap_or_else(|| {
                let last = self.pools.values().max();
                last.map_or(PoolId(UNNAMED_POOLS), |it| PoolId(it.0 + 1))
            });
            self.pools.extend(group.iter().map(|it| (*it, pool)));
        }
    }
}

/// Where the ids of pools begin that recordings do not name: beyond all that they can.
pub(super) const UNNAMED_POOLS: u32 = 1 << 16;

fn attempt(
    device: &DeviceTrace,
    config: &Config,
    handles: &[u64],
    lesson: &Lesson,
) -> (Replay, Program, Taught) {
    let mut follower = follower(device, config.clone(), handles);
    follower.has_private_pools |= !lesson.pools.is_empty();
    follower.pools.extend(&lesson.pools);
    if let Some(goal) = lesson.goal {
        follower.model.driver.goal = goal;
    }
    follower.follow();
    let goal = follower.model.driver.goal;
    let taught = Taught {
        goal: goal.most.map(|_| goal),
        contradictions: std::mem::take(&mut follower.contradictions),
    };
    let (replay, program) = follower.finish();
    (replay, program, taught)
}
