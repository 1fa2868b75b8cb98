//! What the run has to confess: calls that we do not imitate, answers that are approximations,
//! values that the program read and we did not know. Kept in memory, asked for by the agent, and
//! the first of each kind also written to the session folder, so that it survives a crash.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_values::Dropped;

use crate::machine::memory::Lacked;
use crate::machine::neighbours::Holder;

/// Kernels launched, by whichever way.
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// Whether the program asked NVML how large the card is.
static ASKED_SIZE: AtomicBool = AtomicBool::new(false);
static ASSUMED_SIZES: AtomicU64 = AtomicU64::new(0);
static UNKNOWN_READS: AtomicU64 = AtomicU64::new(0);
static UNKNOWN_BYTES: AtomicU64 = AtomicU64::new(0);
/// The agent's callback, as an address; 0 for none.
static ON_READ: AtomicUsize = AtomicUsize::new(0);

static NOT_IMITATED: Mutex<BTreeMap<&'static str, Refusal>> = Mutex::new(BTreeMap::new());
static APPROXIMATED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

#[derive(Debug)]
struct Refusal {
    library: &'static str,
    status: i32,
    count: u64,
}

/// A call that we answer with the error `status` of its library.
pub fn refuse(library: &'static str, name: &'static str, status: i32) -> i32 {
    let mut all = NOT_IMITATED.lock().unwrap_or_else(PoisonError::into_inner);
    let refusal = all.entry(name).or_insert(Refusal { library, status, count: 0 });
    refusal.count += 1;
    let first = refusal.count == 1;
    drop(all);
    if first {
        let line = format!(
            r#"{{"kind":"not_imitated","name":"{name}","library":"{library}","answer":"error {status}"}}"#
        );
        write_line(&line);
    }
    status
}

/// An answer that is not what a real device would give; `what` is a sentence for people.
pub fn approximate(what: &'static str) {
    *APPROXIMATED.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_insert(0) += 1;
}

/// A size that the program computed from values that were assumed; `what` is a sentence for people.
pub fn assume(what: &'static str) {
    ASSUMED_SIZES.fetch_add(1, Ordering::Relaxed);
    approximate(what);
}

/// The program asked NVML for a device's memory: what it does may depend on how large the card is.
pub fn ask_size() {
    if !ASKED_SIZE.swap(true, Ordering::Relaxed) {
        let by = asked_with();
        write_line(&format!(r#"{{"kind":"asked_size","asked_size":"{by}"}}"#));
    }
}

/// What it asked with.
fn asked_with() -> &'static str {
    let program = std::env::args_os().next();
    let name = program.as_deref().and_then(|it| std::path::Path::new(it).file_name());
    if name.is_some_and(|it| it == "nvidia-smi") { "nvidia-smi" } else { "NVML" }
}

/// What the program has copied from a device to the host.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Where it lies now.
    pub to: u64,
    /// How many bytes.
    pub size: u64,
    /// How many of them nobody knows.
    pub unknown: u64,
    /// Whether those are an answer to what the program asked, and no zeros for want of one.
    pub is_answer: bool,
}

/// The agent's callback: where on the host, how many bytes, how many nobody knows, and whether they are an answer. It may write
/// others there, and returns which it wrote: 0 for none, 1 for what the user said, 2 for what the same line read before.
pub type OnRead = extern "C" fn(u64, u64, u64, c_int) -> c_int;

/// How large a number is that the agent is shown though it is known: as large as sizes are.
const SIZE: u64 = 8;

/// The program has read that. Must be called with no lock held: the agent's callback runs Python.
pub fn read(it: Read) {
    let Read { to, size, unknown, is_answer } = it;
    if unknown == 0 && size != SIZE {
        return;
    }
    let callback = ON_READ.load(Ordering::Acquire);
    let mut wrote = 0;
    if callback != 0 {
        // SAFETY: the only writer is `on_read`, whose argument is a function of exactly this type.
        let callback: OnRead = unsafe { std::mem::transmute(callback) };
        wrote = callback(to, size, unknown, is_answer.into());
    }
    match wrote {
        0 if unknown != 0 => {
            UNKNOWN_READS.fetch_add(1, Ordering::Relaxed);
            UNKNOWN_BYTES.fetch_add(unknown, Ordering::Relaxed);
        }
        2 => assume(
            "the script read a number that no kernel computed; plimsoll answered with an earlier known number of the same line",
        ),
        _ => {}
    }
}

/// Sets the function that [`read`] calls, `None` for none.
pub fn on_read(callback: Option<OnRead>) {
    ON_READ.store(callback.map_or(0, |it| it as usize), Ordering::Release);
}

/// What one device has to report, in bytes.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its number in the machine.
    pub ordinal: u32,
    /// The most that all processes held on it at once, contexts included; zero if there was never more than one.
    pub most_together: u64,
    /// Who else held something when this process last ran out, if anybody did.
    pub ran_out: Vec<Holder>,
    /// The card's total.
    pub total: u64,
    /// The CUDA context.
    pub context: u64,
    /// Taken now, without the context.
    pub used: u64,
    /// The most that was taken, without the context.
    pub peak: u64,
    /// The most that was taken by others than `PyTorch`'s allocator.
    pub other_peak: u64,
    /// What the driver and libraries wanted for themselves and did not find.
    pub lacked: Lacked,
    /// What another rank of the job takes at most where this one takes less.
    pub more_elsewhere: u64,
}

/// What the program asked, and might have been told otherwise.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// How many devices it would have to see for all that it asked for; zero if it asked for none beyond.
    pub devices: u64,
    /// `CUDA_VISIBLE_DEVICES`, if it decides which devices the program sees.
    pub visible: Option<String>,
    /// How often it was told that work is done before a slower device would say so.
    pub hurried: u64,
    /// How often it read whether its scaled gradients overflowed.
    pub overflows: u64,
    /// How often it read that they did.
    pub overflows_found: u64,
    /// For how many convolutions it timed algorithms whose workspaces differ.
    pub trials: u64,
}

/// The report as JSON: the contract with the agent, see `docs/recording-format.md`.
pub fn json(devices: &[DeviceReport], asked: Asked, forgotten: Dropped) -> String {
    let Asked { devices: beyond, visible, hurried, overflows, overflows_found: found, trials } =
        asked;
    let mut out = String::from(r#"{"devices":["#);
    for (i, it) in devices.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(
            out,
            r#"{comma}{{"total_bytes":{},"context_bytes":{},"used_bytes":{},"peak_bytes":{},"other_peak_bytes":{},"lacked_bytes":{},"lacked_steps":{},"more_elsewhere_bytes":{},"ordinal":{},"together_bytes":{},"ran_out_beside":["#,
            it.total,
            it.context,
            it.used,
            it.peak,
            it.other_peak,
            it.lacked.bytes,
            it.lacked.steps,
            it.more_elsewhere,
            it.ordinal,
            it.most_together
        );
        for (i, Holder { pid, bytes }) in it.ran_out.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let _ = write!(out, r#"{comma}{{"pid":{pid},"bytes":{bytes}}}"#);
        }
        out.push_str("]}");
    }
    let _ = write!(
        out,
        r#"],"devices_asked":{beyond},"launches":{},"hurried":{hurried},"overflows_asked":{overflows},"overflows_found":{found},"trials":{trials},"assumed_sizes":{},"not_imitated":["#,
        LAUNCHES.load(Ordering::Relaxed),
        ASSUMED_SIZES.load(Ordering::Relaxed)
    );
    let refusals = NOT_IMITATED.lock().unwrap_or_else(PoisonError::into_inner);
    for (i, (name, it)) in refusals.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let Refusal { library, status, count } = it;
        let _ = write!(
            out,
            r#"{comma}{{"name":"{name}","library":"{library}","answer":"error {status}","count":{count}}}"#
        );
    }
    out.push_str(r#"],"approximated":["#);
    let approximations = APPROXIMATED.lock().unwrap_or_else(PoisonError::into_inner);
    for (i, (what, count)) in approximations.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(out, r#"{comma}{{"what":"{what}","count":{count}}}"#);
    }
    if forgotten.count != 0 {
        let comma = if approximations.is_empty() { "" } else { "," };
        let (what, count) = (forgot(forgotten), forgotten.count);
        let _ = write!(out, r#"{comma}{{"what":"{what}","count":{count}}}"#);
    }
    out.push(']');
    if let Some(visible) = visible {
        // Whatever stands there, as JSON.
        let plain = |it: char| it.is_ascii_graphic() && !matches!(it, '"' | '\\') || it == ' ';
        let visible: String = visible.chars().map(|it| if plain(it) { it } else { '?' }).collect();
        let _ = write!(out, r#","visible_devices":"{visible}""#);
    }
    if ASKED_SIZE.load(Ordering::Relaxed) {
        let _ = write!(out, r#","asked_size":"{}""#, asked_with());
    }
    let _ = write!(
        out,
        r#","unknown_reads":{{"count":{},"bytes":{}}}}}"#,
        UNKNOWN_READS.load(Ordering::Relaxed),
        UNKNOWN_BYTES.load(Ordering::Relaxed)
    );
    out
}

/// What was forgotten, in a sentence for people.
fn forgot(it: Dropped) -> String {
    let mib = |bytes: u64| {
        let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
        format!("{}.{} MiB", tenths / 10, tenths % 10)
    };
    let (tensors, them) = if it.count == 1 { ("tensor", "it") } else { ("tensors", "them") };
    format!(
        "the script put more known values on the GPU than plimsoll remembers (128 MiB of copies, 384 MiB of values that follow from them), so plimsoll forgot the largest and oldest: {} {tensors}, {} together, the largest {}; a script that reads \
         {them} back reads zeros",
        it.count,
        mib(it.bytes),
        mib(it.largest),
    )
}

/// The process uses a device: its folder exists from now on.
pub fn begin() {
    write_line(r#"{"kind":"phantom_begin","abi":1}"#);
}

/// Appends to `process-<pid>/phantom.jsonl`. A failure is not the script's business: the same facts
/// are in the report that the agent asks for.
fn write_line(line: &str) {
    let Some(session) = std::env::var_os("PLIMSOLL_SESSION") else { return };
    let folder = std::path::Path::new(&session).join(format!("process-{}", std::process::id()));
    let _ = std::fs::create_dir_all(&folder);
    let file =
        std::fs::OpenOptions::new().append(true).create(true).open(folder.join("phantom.jsonl"));
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_was_not_imitated() {
        assert_eq!(refuse("cudart", "cudaIpcGetMemHandle", 801), 801);
        assert_eq!(refuse("cudart", "cudaIpcGetMemHandle", 801), 801);
        approximate("events are always complete");
        let json = json(
            &[DeviceReport {
                ordinal: 0,
                most_together: 9,
                ran_out: vec![Holder { pid: 12, bytes: 5 }],
                total: 10,
                context: 2,
                used: 4,
                peak: 6,
                other_peak: 1,
                lacked: Lacked { bytes: 7, steps: 3 },
                more_elsewhere: 0,
            }],
            Asked {
                devices: 2,
                visible: Some("3,\"".to_owned()),
                hurried: 3,
                overflows: 4,
                overflows_found: 1,
                trials: 5,
            },
            Dropped { count: 14, bytes: 189 << 20, largest: 27 << 19 },
        );
        assert!(json.contains(
            "so plimsoll forgot the largest and oldest: 14 tensors, 189.0 MiB together, the largest 13.5 MiB; a script that \
             reads them back reads zeros\",\"count\":14}"
        ));
        assert!(json.contains(
            r#"{"name":"cudaIpcGetMemHandle","library":"cudart","answer":"error 801","count":2}"#
        ));
        assert!(
            json.contains(r#"{"total_bytes":10,"context_bytes":2,"used_bytes":4,"peak_bytes":6,"other_peak_bytes":1,"lacked_bytes":7,"lacked_steps":3,"more_elsewhere_bytes":0,"ordinal":0,"together_bytes":9,"ran_out_beside":[{"pid":12,"bytes":5}]}"#)
        );
        assert!(json.contains(r#""devices_asked":2,"#));
        assert!(json.contains(r#","visible_devices":"3,?","#));
        assert!(
            json.contains(r#""hurried":3,"overflows_asked":4,"overflows_found":1,"trials":5,"#)
        );
        assert!(json.contains(r#"{"what":"events are always complete","count":1}"#));
    }
}
