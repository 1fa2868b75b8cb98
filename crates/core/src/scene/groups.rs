//! What a block is drawn with: what it is for, or the line of code that asked for it.

use std::cmp::Reverse;

use crate::{
    findings::category_name,
    prediction::{Category, device_run::DeviceRun},
    scene::{
        Group, Grouping,
        owners::{self, Owner, Owners},
        pools::Pools,
    },
    units::Bytes,
};

/// The lines that get a group of their own: more colours nobody can tell apart.
const LINES: usize = 16;

/// From the bottom of a picture to its top: what stays lies under what comes and goes.
const ORDER: [Option<Category>; 11] = [
    None,
    Some(Category::Parameters),
    Some(Category::Buffers),
    Some(Category::OptimizerState),
    Some(Category::Gradients),
    Some(Category::Inputs),
    Some(Category::Retained),
    Some(Category::Unknown),
    Some(Category::Activations),
    Some(Category::Workspaces),
    Some(Category::Temporaries),
];

/// All groupings of all lives.
pub(super) struct Groups {
    categories: Vec<u8>,
    lines: Vec<u8>,
    pub(super) pools: Pools,
    category_groups: Vec<Group>,
    line_groups: Vec<Group>,
}

impl Groups {
    /// `categories` are of the blocks of the recording; Those before it have none.
    pub(super) fn of(
        run: &DeviceRun<'_>,
        categories: Vec<Category>,
        owners: &Owners,
        pools: Pools,
    ) -> Groups {
        let place = |it: Option<Category>| ORDER.iter().position(|other| *other == it).unwrap_or(0);
        let own = categories.into_iter().map(|it| number(place(Some(it))));
        let categories = run.replay.initial.iter().map(|_| 0).chain(own).collect();
        let category_groups = ORDER.iter().map(|it| category_group(*it)).collect();
        let (lines, line_groups) = by_line(run, owners);
        Groups { categories, lines, pools, category_groups, line_groups }
    }

    pub(super) fn category(&self, life: usize) -> u8 {
        self.categories[life]
    }

    pub(super) fn line(&self, life: usize) -> u8 {
        self.lines[life]
    }

    pub(super) fn of_grouping(&self, grouping: Grouping) -> &[Group] {
        match grouping {
            Grouping::Category => &self.category_groups,
            Grouping::Line => &self.line_groups,
            Grouping::Pool => &self.pools.groups,
        }
    }
}

fn category_group(category: Option<Category>) -> Group {
    let key = match category {
        None => "before",
        Some(Category::Parameters) => "parameters",
        Some(Category::Buffers) => "buffers",
        Some(Category::OptimizerState) => "optimizer",
        Some(Category::Gradients) => "gradients",
        Some(Category::Inputs) => "inputs",
        Some(Category::Retained | Category::KeyValueCache | Category::Graphs) => "kept",
        Some(Category::Activations) => "activations",
        Some(Category::Workspaces) => "workspaces",
        Some(Category::Temporaries) => "temporaries",
        Some(_) => "unknown",
    };
    let name = category.map_or("from before the recording", category_name);
    Group { key, name: name.to_owned() }
}

/// The lines that held most for longest, then all others, then what has no stack.
fn by_line(run: &DeviceRun<'_>, owners: &Owners) -> (Vec<u8>, Vec<Group>) {
    let events = &run.device.events;
    let before = run.replay.initial.iter().map(|it| (it.size, 0, it.free));
    let made = run.replay.blocks.iter().map(|it| (it.size, it.alloc.index(), it.free));
    let mut weights = vec![0_u128; owners.all.len()];
    for (life, (Bytes(size), start, free)) in (0..).zip(before.chain(made)) {
        let end = free.map_or(events.len(), |it| it.index());
        let lasted = end.saturating_sub(start).max(1) as u64;
        weights[owners.index(life) as usize] += u128::from(size) * u128::from(lasted);
    }
    let nobody = owners.all.iter().position(|it| *it == Owner::default());
    let mut lines: Vec<usize> = (0..owners.all.len()).filter(|it| Some(*it) != nobody).collect();
    lines.sort_by_key(|it| (Reverse(weights[*it]), *it));
    let n_others = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    let name = |it: &usize| owners::name(run, owners.all[*it]).map(|it| it.to_string());
    let mut groups: Vec<Group> =
        lines.iter().map(|it| Group { key: "line", name: name(it).unwrap_or_default() }).collect();
    let others = number(groups.len());
    if n_others != 0 {
        groups.push(Group { key: "others", name: format!("{n_others} other lines") });
    }
    let without = number(groups.len());
    if nobody.is_some() || groups.is_empty() {
        let name = if run.stacks.recorded { "no Python stack" } else { "no stack recorded" };
        groups.push(Group { key: "nobody", name: name.to_owned() });
    }
    let group_of: Vec<u8> = (0..owners.all.len())
        .map(|owner| match lines.iter().position(|line| *line == owner) {
            _ if Some(owner) == nobody => without,
            Some(at) => number(at),
            None => others,
        })
        .collect();
    let n = run.replay.initial.len() + run.replay.blocks.len();
    let of_lives =
        (0..super::position::count(n)).map(|it| group_of[owners.index(it) as usize]).collect();
    (of_lives, groups)
}

fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
