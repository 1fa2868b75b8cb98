//! What a block is drawn with: what it is for, or the line of code that asked for it.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    findings::category_name,
    prediction::{Category, device_run::DeviceRun},
    scene::{Group, Grouping, line::line_of, pools::Pools},
    trace::{FrameId, StackId},
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
    Some(Category::Kept),
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
    /// `categories` are of the blocks of the recording; `before` has the stacks of those before it.
    pub(super) fn of(
        run: &DeviceRun<'_>,
        categories: Vec<Category>,
        before: &[StackId],
        pools: Pools,
    ) -> Groups {
        let place = |it: Option<Category>| ORDER.iter().position(|other| *other == it).unwrap_or(0);
        let own = categories.into_iter().map(|it| number(place(Some(it))));
        let categories = before.iter().map(|_| 0).chain(own).collect();
        let category_groups = ORDER.iter().map(|it| category_group(*it)).collect();
        let (lines, line_groups) = by_line(run, before);
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
        Some(Category::Kept) => "kept",
        Some(Category::Activations) => "activations",
        Some(Category::Workspaces) => "workspaces",
        Some(Category::Temporaries) => "temporaries",
        Some(_) => "unknown",
    };
    let name = category.map_or("from before the recording", category_name);
    Group { key, name: name.to_owned() }
}

/// The lines that held most for longest, then all others, then what has no stack.
fn by_line(run: &DeviceRun<'_>, before: &[StackId]) -> (Vec<u8>, Vec<Group>) {
    let events = &run.device.events;
    let own = run.replay.blocks.iter().map(|it| {
        let end = it.free.map_or(events.len(), |it| it.index());
        let lasted = end.saturating_sub(it.alloc.index()) as u64;
        (events.get(it.alloc.index()).stack, it.size, lasted)
    });
    let initial = before
        .iter()
        .zip(&run.replay.initial)
        .map(|(stack, it)| (*stack, it.size, it.free.map_or(events.len(), |it| it.index()) as u64));
    let all = || initial.clone().chain(own.clone());
    // By stack first: there are few, and of each the line is looked up once.
    let mut weights: BTreeMap<Option<FrameId>, u128> = BTreeMap::new();
    let mut by_stack = vec![0_u128; run.trace.stacks.n_nodes()];
    for (stack, Bytes(size), lasted) in all() {
        by_stack[stack.index()] += u128::from(size) * u128::from(lasted.max(1));
    }
    for (stack, weight) in (0..).map(StackId).zip(&by_stack).filter(|(_, it)| **it != 0) {
        *weights.entry(line_of(run, stack)).or_default() += weight;
    }
    let nobody = weights.remove(&None).is_some();
    let mut lines: Vec<(FrameId, u128)> =
        weights.into_iter().filter_map(|(line, weight)| Some((line?, weight))).collect();
    lines.sort_by_key(|(line, weight)| (Reverse(*weight), *line));
    let n_others = lines.len().saturating_sub(LINES);
    lines.truncate(LINES);
    let mut groups: Vec<Group> = lines
        .iter()
        .map(|(line, _)| Group { key: "line", name: super::line::name_of(run, *line).to_string() })
        .collect();
    let others = number(groups.len());
    if n_others != 0 {
        groups.push(Group { key: "others", name: format!("{n_others} other lines") });
    }
    let without = number(groups.len());
    if nobody || groups.is_empty() {
        let name = if run.stacks.recorded {
            "no Python stack (autograd's threads)"
        } else {
            "no stack recorded"
        };
        groups.push(Group { key: "nobody", name: name.to_owned() });
    }
    let group_of: Vec<u8> = (0..super::position::count(by_stack.len()))
        .map(|stack| match line_of(run, StackId(stack)) {
            None => without,
            Some(line) => lines.iter().position(|it| it.0 == line).map_or(others, number),
        })
        .collect();
    (all().map(|(stack, ..)| group_of[stack.index()]).collect(), groups)
}

fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
