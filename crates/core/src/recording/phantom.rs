//! What the phantom says of itself: what it held, and what it could not imitate.

use crate::units::Bytes;

/// The account of one process's phantom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhantomReport {
    /// Its devices.
    pub devices: Vec<PhantomDevice>,
    /// Kernels that it did not run.
    pub launches: u64,
    /// How often work of a job of several ranks was said to be done before a slower device would say so,
    /// where memory depends on it.
    pub hurried: u64,
    /// How often the program read whether its scaled gradients overflowed, and might have been told that they did.
    pub overflows_asked: u64,
    /// How often it was told that they did, and so skipped a step.
    pub overflows_found: u64,
    /// For how many convolutions the program timed algorithms whose workspaces differ.
    pub trials: u64,
    /// How often a size follows from values that were assumed.
    pub assumed_sizes: u64,
    /// How many devices the program would have to see for all that it asked for; zero if it asked for none beyond.
    pub devices_asked: u64,
    /// `CUDA_VISIBLE_DEVICES`, if it hides devices or names some that only the user's machine has.
    pub visible_devices: Option<String>,
    /// What the program asked NVML for the card's memory with, if it did: `nvidia-smi`, or NVML itself.
    pub asked_size: Option<String>,
    /// Calls answered with an error, because we do not imitate them.
    pub not_imitated: Vec<NotImitated>,
    /// Calls answered with something near the truth.
    pub approximated: Vec<Approximated>,
    /// How often the program read device bytes that nobody knows.
    pub unknown_reads: u64,
    /// How many bytes those were.
    pub unknown_read_bytes: Bytes,
}

/// One device of the phantom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhantomDevice {
    /// Its number in the machine; the process may count its devices otherwise.
    pub ordinal: u32,
    /// The most that all processes held on it at once, contexts included; zero if there was never more than one.
    pub together: Bytes,
    /// Who else held something when this process last ran out, if anybody did.
    pub ran_out_beside: Vec<Holder>,
    /// Its capacity.
    pub total: Bytes,
    /// What its context took from the capacity at first use.
    pub context: Bytes,
    /// What was taken in the end, beside the context.
    pub used: Bytes,
    /// What was taken at most, beside the context.
    pub peak: Bytes,
    /// What libraries other than PyTorch's allocator took at most.
    pub other_peak: Bytes,
    /// What the driver and libraries wanted at most for themselves that was not free: that call failed.
    pub lacked: Bytes,
    /// How many steps the program had finished when that last happened, if the recording says it.
    pub lacked_steps: Option<u64>,
    /// What another rank of the job takes at most where this one takes less.
    pub more_elsewhere: Bytes,
}

/// A process, and what it held on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// How much, with its context.
    pub bytes: Bytes,
}

/// A call that we do not imitate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotImitated {
    /// The function.
    pub name: String,
    /// The library that it belongs to.
    pub library: String,
    /// What the program got.
    pub answer: String,
    /// How often.
    pub count: u64,
}

/// Something that the phantom does only nearly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approximated {
    /// A sentence for people.
    pub what: String,
    /// How often.
    pub count: u64,
}
