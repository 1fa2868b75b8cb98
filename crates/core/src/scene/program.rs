//! The recorded program under another card or other settings, as a curve over the recorded one.

use crate::{
    replay::{self, Config, Levels, WhatIf},
    scene::{Position, Scene},
    units::Bytes,
};

/// What would have happened.
#[derive(Clone, Debug)]
pub struct Counterfactual {
    /// How it came out.
    pub outcome: WhatIf,
    /// The same program under the recorded settings, with nothing that limits it.
    pub recorded_reserved: Bytes,
    /// For each column, what was allocated and reserved at most; fewer where it ran out.
    pub curve: Vec<Levels>,
    /// How many columns the whole recording has.
    pub columns: u32,
}

impl Scene<'_> {
    /// What would have happened with `alloc_conf` (the recorded settings when none) where PyTorch may
    /// take `capacity`.
    ///
    /// # Errors
    ///
    /// When a setting is none that torch knows.
    pub fn what_if(
        &self,
        capacity: Option<Bytes>,
        alloc_conf: Option<&str>,
        columns: u32,
    ) -> Result<Counterfactual, replay::ConfError> {
        let settings = self.run.trace.settings.clone().unwrap_or_default();
        let mut config = match alloc_conf {
            Some(text) => Config::of_alloc_conf(text, self.run.torch)?,
            None => Config::of_recording(&settings, self.run.torch),
        };
        config.capacity = capacity;
        let columns = columns.clamp(1, 4096).min(self.end());
        let column = |position: Position| {
            u64::from(position) * u64::from(columns) / u64::from(self.end().max(1))
        };
        let mut curve: Vec<Levels> = Vec::new();
        let mut last = Levels::default();
        let outcome = replay::what_if_seen(&self.run.program, &config, &mut |event, levels| {
            let position = event.0 + 1;
            let at = usize::try_from(column(position)).unwrap_or(usize::MAX);
            let is_first = curve.len() <= at && column(position - 1) < column(position);
            while curve.len() <= at && curve.len() < columns as usize {
                curve.push(last);
            }
            if let Some(it) = curve.last_mut() {
                // A column that begins here knows nothing of what was before.
                let before = if is_first { Levels::default() } else { *it };
                it.allocated = before.allocated.max(levels.allocated);
                it.reserved = before.reserved.max(levels.reserved);
            }
            last = levels;
        });
        if outcome.ran_out.is_none() {
            curve.resize(columns as usize, last);
        }
        let (recorded_reserved, _) = self.levels.peak_reserved();
        Ok(Counterfactual { outcome, recorded_reserved, curve, columns })
    }

    /// The value of `PYTORCH_CUDA_ALLOC_CONF` that it was recorded under.
    pub fn alloc_conf(&self) -> &str {
        self.run.trace.settings.as_ref().map_or("", |it| it.text.as_str())
    }
}
