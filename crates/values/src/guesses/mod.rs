//! What is assumed where nobody knows, and what was assumed so far.

pub(crate) mod choices;
pub(crate) mod descent;
pub(crate) mod overflow;
pub(crate) mod remarks;
pub(crate) mod settings;
pub(crate) mod waits;

use self::choices::Choices;
use self::descent::Descent;
use self::overflow::Scalers;
use self::remarks::Remarks;
use self::settings::Settings;
use self::waits::Wait;

/// The state of all guesses of a process.
#[derive(Debug)]
pub(crate) struct Guesses {
    pub(crate) settings: Settings,
    pub(crate) remarks: Remarks,
    pub(crate) choices: Choices,
    pub(crate) wait: Wait,
    pub(crate) scalers: Scalers,
}

impl Guesses {
    pub(crate) fn new(settings: Settings) -> Guesses {
        let first_millionths = settings.experts_millionths;
        Guesses {
            settings,
            remarks: Remarks::default(),
            choices: Choices::favouring(first_millionths),
            wait: Wait::default(),
            scalers: Scalers::default(),
        }
    }
}

/// And of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfThread {
    /// The kernels that were launched since the last question, as one number (see [`waits`]).
    pub(crate) kernels: u64,
    pub(crate) descent: Option<Descent>,
    /// What filters of unknown values find: a share in millionths, or one of `count`'s numbers for something else.
    pub(crate) kept: i32,
}

impl OfThread {
    /// A thread that has done nothing yet.
    pub(crate) const NEW: OfThread = OfThread { kernels: 0, descent: None, kept: -1 };
}
