//! Graphs and results that live longer than their step: PLM1xx.

mod averages;
mod carried;
mod emptied;
mod hooks;
mod instead;
mod kept;
mod saved;

use std::collections::BTreeSet;

use crate::{
    reading::{events::What, story::Story},
    rules::found::Found,
};

pub(super) fn find(story: &Story<'_, '_>, acc: &mut Vec<Found>) {
    let step_loops: BTreeSet<usize> = story.step_loops().into_iter().collect();
    for event in &story.events {
        match &event.what {
            What::Keep { .. } => kept::in_loops(story, &step_loops, event, acc),
            What::Gather { value, mapped } => kept::gathered(story, event, value, *mapped, acc),
            What::Backward { .. } => carried::passes(story, event, acc),
            What::Forward { .. } => carried::into_a_model(story, &step_loops, event, acc),
            _ => {}
        }
    }
    saved::in_contexts(story, acc);
    hooks::registered(story, acc);
    kept::lightning(story, acc);
    kept::metrics(story, acc);
    averages::with_graphs(story, acc);
    kept::in_functions(story, &step_loops, acc);
    for (index, class) in story.file.classes.iter().enumerate() {
        kept::in_methods(story, index, acc);
        if class.is_module() {
            carried::state_of_a_module(story, index, acc);
        }
    }
}
