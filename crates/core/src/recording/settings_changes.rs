//! A program may change the allocator's settings while it runs; the snapshot has only the last ones. The agent notes each change,
//! and here the trace gets them: the settings of the beginning, and the changes by event.

use crate::{
    recording::{Notes, counts::Counts},
    trace::{Settings, SettingsChange, Trace},
};

/// Puts the noted changes into `trace`. Does nothing where the program changed none.
pub(super) fn take_in(trace: &mut Trace, notes: &Notes) {
    let Some(first) = notes.settings.first() else { return };
    trace.settings = Some(Settings {
        is_of_beginning: true,
        expandable_segments: first.before.contains("expandable_segments:True"),
        text: first.before.clone(),
        ..Settings::default()
    });
    for (index, device) in trace.devices.iter_mut().enumerate() {
        let counts = Counts::of(device, notes, index);
        let changes = notes.settings.iter();
        device.settings_changes = changes
            .map(|it| SettingsChange { from: counts.event(&it.place), text: it.text.clone() })
            .collect();
    }
}
