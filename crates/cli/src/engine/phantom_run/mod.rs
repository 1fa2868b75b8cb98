//! A script on a phantom: the card, one run in a world of its own, what it left, and what the phantom decided by
//! itself. `predict`, `fit`, `run` and `doctor` share this, and so do trials.

mod card;
mod completed;
mod ends;
mod here;
mod reading;
mod world;

pub(crate) use self::{
    card::{Choice, Home, How, card, choice, largest, largest_for},
    completed::{Completing, devices_of, world_of},
    ends::{conf_line, left_open},
    reading::{facts, read},
    world::{RunOutput, Runner, World},
};
use crate::{
    engine::launch::{Device, Ranks, ScriptCommand, ScriptOutput, Setting, Stop},
    options::ghost_weights::GhostWeights,
};

/// What one run is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) command: &'a ScriptCommand,
    /// What the phantom is told.
    pub(crate) conf: &'a str,
    pub(crate) stop: Stop,
    pub(crate) ranks: &'a Ranks,
    pub(crate) ghost_weights: GhostWeights,
    pub(crate) output: ScriptOutput,
    /// More for the script's environment.
    pub(crate) settings: &'a [Setting],
    pub(crate) device: Device,
}
