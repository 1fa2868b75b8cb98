//! What a run left, as recordings and facts.

use plimsoll_core::{
    prediction::{RunFacts, ScriptExit},
    recording::Recording,
    sources,
    units::Bytes,
};

use crate::{
    engine::launch::{End, Ended},
    files::process_folder::ProcessFolder,
};

/// The recordings, and what in them could not be read.
pub(crate) fn read(folders: &[ProcessFolder]) -> (Vec<Recording>, Vec<String>) {
    let mut recordings = Vec::new();
    let mut unread = Vec::new();
    for folder in folders {
        let reading = sources::read_process(folder.files());
        recordings.push(reading.recording);
        let pid = folder.pid;
        let warnings = reading.warnings.iter();
        unread.extend(warnings.map(|it| format!("process {pid}: {it}")));
    }
    (recordings, unread)
}

/// What a prediction has to know of a run beside its recordings; `max`: the most that it may need.
pub(crate) fn facts(ended: &Ended, max: Option<Bytes>) -> RunFacts {
    let exit = match ended.end {
        End::Code(code) => ScriptExit::Code(code),
        End::Signal(number) => ScriptExit::Signal(number),
    };
    RunFacts { exit, seconds: ended.seconds, max, waited_in_vain: ended.waited_in_vain }
}
