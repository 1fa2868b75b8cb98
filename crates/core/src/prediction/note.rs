//! What a reader has to know to trust a prediction: typed, and put into words by [`Note`]'s `Display`, so that every view says
//! the same.

use std::fmt;

use crate::{
    codes::{NoteCode, RemarkCode},
    prediction::{Counted, OtherEnd, ScriptExit, Seen},
    recording::{CodeLine, Exception, Holder, Remark},
    units::{Bytes, grouped, times},
};

/// How many processes a note names.
const NAMED_HOLDERS: usize = 4;

/// Which ranks of a job ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanksSeen {
    /// Each of them.
    All,
    /// These, one after the other: the first, or the one that was asked for, then others until one differed.
    Each(Vec<u32>),
    /// One of each stage of a pipeline.
    Stages(Vec<u32>),
    /// The first and the last of each stage, which need the same; then the first.
    EndsOfStages {
        /// The first
        first: Vec<u32>,
        /// and the last.
        last: Vec<u32>,
    },
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// This Python or torch cannot be predicted; the agent's sentence.
    Unsupported(String),
    /// No process left anything: torch was never imported.
    NothingRecorded,
    /// torch was imported, and no GPU memory was ever used.
    NoGpuUse,
    /// The script ended by itself before it had shown enough.
    ScriptFailed {
        /// How.
        exit: ScriptExit,
        /// The exception that ended it, if it was one.
        exception: Option<Exception>,
    },
    /// Ctrl-C.
    Interrupted,
    /// The script had failed and did not end; so we ended it.
    Waited,
    /// The notes of a process end before it did, for this reason.
    Cut(String),
    /// What the prediction rests on.
    Steps {
        /// What the run went through.
        seen: Seen,
        /// Memory was the same in the last two steps.
        steady: bool,
    },
    /// What was not reached and may take more, in words.
    NotSeen(&'static str),
    /// The script has an optimizer, and came to its end without one training step.
    NeverTrained {
        /// How often a model was called without gradients.
        evaluations: u64,
        /// Whether it made a backward pass.
        went_back: bool,
        /// What it needs up to its end; none if it never used a GPU.
        before: Option<Bytes>,
    },
    /// So little grows with the steps that no training is long enough to run out of it.
    GrowsSlowly {
        /// What stays at a time.
        at_a_time: Bytes,
        /// After every so many steps it rises.
        every: u32,
        /// What a step is.
        counted: Counted,
        /// The line that made it.
        at: Option<CodeLine>,
        /// How many steps the script comes to, if that is known, and what they leave in all: the safe size has it.
        of: Option<(u64, Bytes)>,
    },
    /// A run at another end of what the run depends on did not get as far as this one.
    OtherEndUnseen {
        /// Of what.
        end: OtherEnd,
    },
    /// No step of any kind was seen: what the report shows is all that the script did.
    NoSteps,
    /// A gradient scaler skipped every step that was seen.
    AllSkipped,
    /// The script caught out-of-memory errors and went on.
    OomCaught {
        /// How many.
        count: usize,
        /// Where the first was.
        at: Option<CodeLine>,
    },
    /// The allocator gave all its free memory back and tried again, as it does when a card is nearly
    /// full.
    Retries(u64),
    /// Several processes used a device; the report is about the one that took most.
    SeveralProcesses(usize),
    /// These other ranks of the job were run as well, and need the same.
    RanksAlike(Vec<u32>),
    /// The ranks of the job need different amounts.
    RanksDiffer {
        /// The one that needs most, which the report shows.
        largest: Option<u32>,
        /// What it needs,
        most: Bytes,
        /// and what the one needs that needs least.
        least: Bytes,
        /// Which of them ran.
        seen: RanksSeen,
    },
    /// Another rank of the job, or all ranks together, did not run to an answer.
    RanksUnseen {
        /// Which one; none if all of them.
        rank: Option<u32>,
    },
    /// One rank of the job ran because somebody named it.
    RankAlone {
        /// Which.
        rank: u32,
        /// Of how many.
        world: u32,
    },
    /// The script asked how large the card is, so other cards cannot be told from this one.
    AskedSize {
        /// What it called.
        call: String,
        /// Where, if that is known.
        at: Option<CodeLine>,
    },
    /// `CUDA_VISIBLE_DEVICES` names devices of the user's machine, or more than there are.
    VisibleDevices {
        /// What it says.
        variable: String,
        /// How many the script saw.
        seen: usize,
    },
    /// Several processes held memory of one device at once.
    Together {
        /// All of them, at most.
        bytes: Bytes,
    },
    /// Memory ran out on a device that other processes used, too.
    RanOutBeside {
        /// Who held what there then.
        holders: Vec<Holder>,
        /// What the card has.
        total: Bytes,
    },
    /// The program read values which the phantom does not know and got zeros: sizes that depend on
    /// data may differ.
    UnknownReads {
        /// How often.
        count: u64,
        /// The lines, most frequent first, and how often each.
        lines: Vec<(CodeLine, u64)>,
    },
    /// Sizes follow from what nobody computed, so what is predicted depends on it.
    SizesUnknown {
        /// Lines whose numbers read as zero and become sizes.
        lines: Vec<CodeLine>,
        /// What was assumed to find nothing, or all, such as `nonzero()`.
        finders: Vec<String>,
    },
    /// A call that the phantom does not imitate.
    NotImitated {
        /// The function.
        name: String,
        /// What the program got.
        answer: String,
        /// How often.
        count: u64,
    },
    /// Something that the phantom does only nearly; its own sentence.
    Approximated(String),
    /// The recording does not begin at the beginning.
    RecordingIncomplete {
        /// Reserved before its first event.
        before: Bytes,
    },
    /// Events that the allocator would not have produced.
    Mismatches(u64),
    /// No phases were marked; categories come from stacks and lifetimes alone.
    NoPhases,
    /// Much of the peak could not be explained.
    MuchUnknown {
        /// How much.
        bytes: Bytes,
    },
    /// The size of the card's CUDA context was not measured.
    ContextDerived {
        /// What was counted.
        context: Bytes,
        /// How much more or less it may be.
        range: Bytes,
    },
    /// What the process takes depends on what a phantom cannot know.
    OtherEnd {
        /// On what.
        end: OtherEnd,
        /// The peak of the run that is shown.
        this: Bytes,
        /// The peak at the other end.
        other: Bytes,
        /// The largest of what lies between both ends of a race or of a router, where that is more.
        between: Option<Bytes>,
    },
    /// What became of what the script wrote, in words.
    Wrote(String),
    /// Whom the script reached outside of its own processes, in words.
    Reached(String),
    /// Something that could not be read, in words.
    Unread(String),
    /// The script failed, in words that know more of its process than a recording does.
    Failed {
        /// What a recording says of it.
        code: NoteCode,
        /// Why.
        text: String,
    },
    /// It failed where masks found nothing, and ran again with half of each true.
    HalfOfMasks,
    /// Why this card was imitated, in words: nobody named one.
    CardChosen(String),
    /// It ran on each of the cards that were named.
    RanOnEachCard,
    /// It was interrupted on a larger card.
    NothingOfLarger {
        /// Which.
        card: String,
    },
    /// A folder that could not be written to, though a real run could.
    ReadOnly {
        /// The folder.
        path: String,
        /// Why.
        why: String,
    },
    /// What the script took of the host's memory, where the host may have less.
    HostMemory {
        /// At most.
        peak: Bytes,
        /// What the host has, where that is known.
        total: Option<Bytes>,
    },
    /// What its processes shared, where a container may have less.
    HostShared(Bytes),
    /// A sentence from the agent.
    Remark(Remark),
}

impl Note {
    /// A stable word for it.
    pub fn code(&self) -> &str {
        match self {
            Note::Remark(remark) => remark.code.word(),
            of_ours => of_ours.kind().map_or("", NoteCode::word),
        }
    }

    /// Of what kind it is; a sentence of the agent has a code of its own.
    pub(super) fn kind(&self) -> Option<NoteCode> {
        Some(match self {
            Note::Unsupported(_) => NoteCode::Unsupported,
            Note::NothingRecorded => NoteCode::NothingRecorded,
            Note::NoGpuUse => NoteCode::NoGpuUse,
            Note::ScriptFailed { .. } => NoteCode::ScriptFailed,
            Note::Interrupted => NoteCode::Interrupted,
            Note::Waited => NoteCode::WaitedInVain,
            Note::Cut(_) => NoteCode::CutOff,
            Note::Steps { .. } => NoteCode::Steps,
            Note::NoSteps => NoteCode::NoSteps,
            Note::AllSkipped => NoteCode::AllSkipped,
            Note::NotSeen(_) => NoteCode::NotSeen,
            Note::NeverTrained { .. } => NoteCode::NeverTrained,
            Note::GrowsSlowly { .. } => NoteCode::GrowsSlowly,
            Note::OtherEndUnseen { .. } => NoteCode::OtherEndUnseen,
            Note::OomCaught { .. } => NoteCode::OomCaught,
            Note::Retries(_) => NoteCode::Retries,
            Note::SeveralProcesses(_) => NoteCode::SeveralProcesses,
            Note::RanksAlike(_) => NoteCode::RanksAlike,
            Note::RanksDiffer { .. } => NoteCode::RanksDiffer,
            Note::RanksUnseen { .. } => NoteCode::RanksUnseen,
            Note::RankAlone { .. } => NoteCode::RankAlone,
            Note::AskedSize { .. } => NoteCode::AskedSize,
            Note::VisibleDevices { .. } => NoteCode::VisibleDevices,
            Note::Together { .. } => NoteCode::Together,
            Note::RanOutBeside { .. } => NoteCode::RanOutBeside,
            Note::UnknownReads { .. } => NoteCode::UnknownReads,
            Note::SizesUnknown { .. } => NoteCode::SizesUnknown,
            Note::NotImitated { .. } => NoteCode::NotImitated,
            Note::Approximated(_) => NoteCode::Approximated,
            Note::RecordingIncomplete { .. } => NoteCode::RecordingIncomplete,
            Note::Mismatches(_) => NoteCode::Mismatches,
            Note::NoPhases => NoteCode::NoPhases,
            Note::MuchUnknown { .. } => NoteCode::MuchUnknown,
            Note::ContextDerived { .. } => NoteCode::ContextDerived,
            Note::OtherEnd { end: OtherEnd::Late, .. } => NoteCode::Order,
            Note::OtherEnd { end: OtherEnd::Overflow, .. } => NoteCode::Overflow,
            Note::OtherEnd { end: OtherEnd::Workspaces, .. } => NoteCode::CudnnBenchmark,
            Note::OtherEnd { end: OtherEnd::Found, .. } => NoteCode::EverythingFound,
            Note::OtherEnd { end: OtherEnd::Routed, .. } => NoteCode::OneExpert,
            Note::Wrote(_) => NoteCode::Writes,
            Note::Reached(_) => NoteCode::Network,
            Note::Unread(_) => NoteCode::Unread,
            Note::Failed { code, .. } => *code,
            Note::HalfOfMasks => NoteCode::MasksHalf,
            Note::CardChosen(_) => NoteCode::NoGpuChosen,
            Note::RanOnEachCard => NoteCode::Cards,
            Note::NothingOfLarger { .. } => NoteCode::Interrupted,
            Note::ReadOnly { .. } => NoteCode::ReadOnly,
            Note::HostMemory { .. } => NoteCode::HostMemory,
            Note::HostShared(_) => NoteCode::HostShared,
            Note::Remark(_) => return None,
        })
    }

    /// Whether it casts doubt on the numbers, rather than saying what they rest on.
    pub fn is_doubt(&self) -> bool {
        // A tracker that was kept off, and batches in the order that says most.
        let only_tells = [
            RemarkCode::KeptOff,
            RemarkCode::WorstBatches,
            RemarkCode::LargestDraws,
            RemarkCode::RaisesLater,
        ];
        !matches!(self, Note::Remark(Remark { code, .. }) if only_tells.contains(code))
            && !matches!(
                self,
                Note::Steps { steady: true, .. }
                    | Note::Steps { seen: Seen { whole: true, .. }, .. }
                    | Note::Waited
                    | Note::ContextDerived { .. }
                    | Note::SeveralProcesses(_)
                    | Note::RanksAlike(_)
                    | Note::RanksDiffer {
                        seen: RanksSeen::All
                            | RanksSeen::Stages(_)
                            | RanksSeen::EndsOfStages { .. },
                        ..
                    }
                    | Note::AskedSize { .. }
                    | Note::VisibleDevices { .. }
                    | Note::Together { .. }
                    | Note::RanOutBeside { .. }
                    | Note::Wrote(_)
                    | Note::Reached(_)
            )
    }
}

/// As in `0, 4`.
fn numbers(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unsupported(text)
            | Note::Approximated(text)
            | Note::Wrote(text)
            | Note::Reached(text)
            | Note::Unread(text) => f.write_str(text),
            Note::NothingRecorded => f.write_str(
                "the command did not import torch in a Python process that plimsoll can observe, so there is nothing to predict",
            ),
            Note::NoGpuUse => f.write_str(
                "the script ended without using the GPU: check how it chooses its device",
            ),
            Note::ScriptFailed { exit, exception: None } => {
                write!(f, "the script {exit} before it had run far enough for an answer")
            }
            Note::ScriptFailed { exit: _, exception: Some(exception) } => {
                write!(f, "the script failed: {exception}")
            }
            Note::Interrupted => f.write_str("interrupted before the script had run far enough for an answer"),
            Note::Waited => f.write_str(
                "the script failed and did not end: one of its threads or processes went on waiting, as it would on a GPU. plimsoll ended it",
            ),
            Note::Cut(why) => write!(
                f,
                "plimsoll could record only a part of the run ({why}), so these numbers do not include later steps. Raise the limit on the size of files (`ulimit -f`), or free space on the disk of plimsoll's cache"
            ),
            Note::NotSeen(missing) => {
                write!(f, "not seen: {missing}; --until-exit runs the script to its end")
            }
            Note::Steps { seen, steady } => steps(f, *seen, *steady),
            Note::NeverTrained { evaluations, went_back, before } => {
                f.write_str(if *went_back {
                    "the script has an optimizer and ended without a training step"
                } else {
                    "no training step ran: the script has an optimizer and ended without a backward pass"
                })?;
                if *evaluations != 0 {
                    let times = u32::try_from(*evaluations).unwrap_or(u32::MAX);
                    write!(f, ", after {} without gradients", Counted::ForwardPasses.times(times))?;
                }
                if let Some(before) = before {
                    write!(f, ". Before training it needs {before}")?;
                }
                f.write_str(if *went_back {
                    ". It caught an error, or there was nothing to train: its output shows which"
                } else {
                    ". If it was to train, its output shows why it did not"
                })
            }
            Note::GrowsSlowly { at_a_time, every, counted, at, of } => {
                let several = counted.several();
                write!(f, "{at_a_time} more stay allocated {}", counted.when(*every))?;
                if let Some(at) = at {
                    write!(f, " ({at})")?;
                }
                match of {
                    Some((steps, bytes)) => write!(
                        f,
                        ": {bytes} in the {} {several} of the script, which the safe size includes",
                        grouped(*steps)
                    ),
                    None => {
                        let many = Bytes(at_a_time.0.saturating_mul(10_000 / u64::from(*every).max(1)));
                        write!(f, ": {many} in 10,000 {several}, which the safe size does not include")
                    }
                }
            }
            Note::OtherEndUnseen { end } => write!(
                f,
                "memory depends on {}. plimsoll ran the other case, too; that run stopped earlier, so the safe size does not cover it",
                match end {
                    OtherEnd::Late => "when PyTorch's threads and the GPU finish their work, which differs from run to run",
                    OtherEnd::Overflow => "whether the first steps of a GradScaler overflow",
                    OtherEnd::Workspaces => "which algorithm is the fastest for torch.backends.cudnn.benchmark",
                    OtherEnd::Found => "how many elements boolean masks select, in values that a phantom does not compute",
                    OtherEnd::Routed => "how many tokens a router sends to each expert, in values that a phantom does not compute",
                }
            ),
            Note::NoSteps => f.write_str(
                "the script ran no training step; the numbers cover all that it did",
            ),
            Note::AllSkipped => f.write_str(
                "a GradScaler skipped every training step, because the loss is a sum whose scaled gradients overflow half precision. No optimizer allocated its state, so a longer run needs more. Give the number of skipped steps: --assume overflow=1",
            ),
            Note::OomCaught { count, at } => {
                write!(f, "the script caught {} and went on", errors(*count))?;
                match at {
                    Some(at) => write!(f, " (first at {at})"),
                    None => Ok(()),
                }
            }
            Note::Retries(count) => write!(
                f,
                "{} the card was full and the allocator gave its free memory back to the driver: the script fits, but runs slower",
                times(*count)
            ),
            Note::SeveralProcesses(count) => write!(
                f,
                "{count} processes used a GPU; the numbers are those of the largest"
            ),
            Note::RanksAlike(ranks) => match ranks.as_slice() {
                [rank] => write!(f, "rank {rank} was run as well, and needs the same"),
                ranks => write!(f, "ranks {} were run as well, and need the same", numbers(ranks)),
            },
            Note::RanksDiffer { largest, most, least, seen } => {
                write!(f, "the ranks of the job need {least} to {most}")?;
                if let Some(rank) = largest {
                    write!(f, "; the largest is rank {rank}, as shown here")?;
                }
                match seen {
                    RanksSeen::All => f.write_str("; all of them ran"),
                    RanksSeen::Stages(ranks) => {
                        write!(
                            f,
                            "; ranks {} ran, one of each stage, and the others are assumed to need what these need",
                            numbers(ranks)
                        )
                    }
                    RanksSeen::EndsOfStages { first, last } => write!(
                        f,
                        "; ranks {} ran, the first of each stage, and ranks {}, the last, which need the same; those between are assumed to need it, too",
                        numbers(first),
                        numbers(last)
                    ),
                    RanksSeen::Each(ranks) => write!(
                        f,
                        "; ranks {} ran, another may need more: --rank R runs it",
                        numbers(ranks)
                    ),
                }
            }
            Note::RanksUnseen { rank: Some(rank) } => write!(
                f,
                "rank {rank} did not run to an answer without the others, so it may need more: --rank {rank} shows why"
            ),
            Note::RanksUnseen { rank: None } => f.write_str(
                "the ranks of the job differ, and several of them together did not run to an answer, so one may need more; where the job has one machine, --all-ranks shows why",
            ),
            Note::RankAlone { rank, world } => write!(
                f,
                "the answer covers rank {rank} of {world}, and no other: without --rank, plimsoll looks for one that needs more"
            ),
            Note::AskedSize { call, at } => {
                write!(f, "the script reads the GPU's size ({call}")?;
                if let Some(at) = at {
                    write!(f, " at {at}")?;
                }
                f.write_str(
                    "), so another card may give another answer; --cards a,b,c runs it on each",
                )?;
                if call.contains("device_map") {
                    f.write_str(
                        ", and device_map={\"\": 0} in the script gives the list of all cards",
                    )?;
                }
                Ok(())
            }
            Note::VisibleDevices { variable, seen } => {
                write!(f, "CUDA_VISIBLE_DEVICES is \"{variable}\": ")?;
                let named = variable.split(',').count();
                match (seen, named) {
                    (1, 1) => f.write_str("the phantom stands for that GPU"),
                    _ if *seen < named => write!(
                        f,
                        "the script saw {seen} of these {named} GPUs; --gpus {named} shows it all of them"
                    ),
                    _ => f.write_str("phantoms stand for these GPUs"),
                }
            }
            Note::Together { bytes } => write!(
                f,
                "several processes share the GPU and hold {bytes} together, CUDA contexts included; the safe size and the list of cards cover all of them"
            ),
            Note::RanOutBeside { holders, total } => {
                let together = holders.iter().fold(Bytes::ZERO, |sum, it| sum + it.bytes);
                write!(f, "when memory ran out, other processes held {together} of the card's {total}: ")?;
                for (i, Holder { pid, bytes }) in holders.iter().take(NAMED_HOLDERS).enumerate() {
                    let before = if i == 0 { "" } else { ", " };
                    write!(f, "{before}process {pid} {bytes}")?;
                }
                match holders.len().saturating_sub(NAMED_HOLDERS) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            Note::UnknownReads { count, lines } => {
                match count {
                    1 => f.write_str(
                        "your script reads back one value that a phantom does not compute; it is 0 here. If a shape or a loop depends on it, give it: --assume FILE:LINE=NUMBER",
                    )?,
                    _ => write!(
                        f,
                        "your script reads back {count} values that a phantom does not compute; they are 0 here. If a shape or a loop depends on one, give it: --assume FILE:LINE=NUMBER"
                    )?,
                }
                for (i, (line, count)) in lines.iter().enumerate() {
                    let before = if i == 0 { ": " } else { ", " };
                    write!(f, "{before}{line} ({count}x)")?;
                }
                Ok(())
            }
            Note::SizesUnknown { lines, finders } => sizes_unknown(f, lines, finders),
            Note::NotImitated { name, answer, count } => write!(
                f,
                "the phantom does not imitate {name}; the program got {answer} ({count}x)"
            ),
            Note::RecordingIncomplete { before } => write!(
                f,
                "the recording began late: {before} were reserved before it"
            ),
            Note::Mismatches(count) => write!(
                f,
                "{count} events of the recording do not match plimsoll's model of the allocator; the numbers may be off"
            ),
            Note::OtherEnd { end: OtherEnd::Late, this, other, between } => {
                let shown = |it: bool| if it { ", as shown here" } else { "" };
                let (early, late) = (shown(other <= this), shown(this < other));
                write!(
                    f,
                    "memory depends on when PyTorch's threads and the GPU finish their work, which differs between the ranks of a job: {this} if early{early}, {other} if late{late}"
                )?;
                match between {
                    Some(most) => write!(
                        f,
                        ", up to {most} if a rank changes between the two; the safe size, if there is one, covers all of them"
                    ),
                    None => f.write_str("; the safe size, if there is one, covers both"),
                }
            }
            Note::OtherEnd { end: OtherEnd::Overflow, this, other, .. } => write!(
                f,
                "a GradScaler skips its first steps if their gradients overflow, which a phantom cannot always know: {this} as shown here, {other} if it skips only the first; the safe size, if there is one, covers both. Give their number: --assume overflow=N"
            ),
            Note::OtherEnd { end: OtherEnd::Workspaces, this, other, .. } => write!(
                f,
                "torch.backends.cudnn.benchmark picks the fastest algorithms, which are unknown on a phantom: {this} with those that cuDNN lists first, {other} with those that need the largest workspaces; the safe size, if there is one, covers both"
            ),
            Note::OtherEnd { end: OtherEnd::Found, this, other, .. } => write!(
                f,
                "a phantom does not compute the values that boolean masks read: {this} if they select nothing, as shown here, {other} if they select everything; the safe size, if there is one, covers both. Give the share: --assume nonzero=SHARE"
            ),
            Note::OtherEnd { end: OtherEnd::Routed, this, other, between } => write!(
                f,
                "a phantom does not compute what a router chooses: {this} if it spreads the tokens evenly, as shown here, {other} if it sends all of them to one expert{}. Give the largest share of an expert: --assume experts=SHARE",
                match between {
                    Some(most) => format!(
                        ", up to {most} if it sends other numbers in each layer and step; the safe size, if there is one, covers all of them"
                    ),
                    None => "; the safe size, if there is one, covers both".to_owned(),
                }
            ),
            Note::NoPhases => f.write_str(
                "the recording marks no phases (forward pass, backward pass, ...): plimsoll inferred the categories from stacks and lifetimes",
            ),
            Note::MuchUnknown { bytes } => {
                write!(f, "{bytes} of the peak are of unknown purpose")
            }
            Note::ContextDerived { context, range } => write!(
                f,
                "plimsoll has not measured the CUDA context of this card: {context} is derived from other cards, ± {range}, which a safe size includes; `plimsoll calibrate` measures it on such a card"
            ),
            Note::Failed { text, .. } | Note::CardChosen(text) => f.write_str(text),
            Note::HalfOfMasks => f.write_str(
                "the script failed where boolean masks selected nothing, because a phantom does not compute their values. plimsoll ran it again with half of each mask true; give the true share: --assume nonzero=0.25",
            ),
            Note::RanOnEachCard => f.write_str(
                "plimsoll ran the script on each card of --cards; the numbers above are those of one",
            ),
            Note::NothingOfLarger { card } => write!(
                f,
                "interrupted while the script ran again on a phantom {card}, so larger cards are unknown"
            ),
            Note::ReadOnly { path, why } => write!(
                f,
                "{path} was read-only for the script, because a private layer cannot cover it: {why}. If the script has to write there: --writes through"
            ),
            Note::HostMemory { peak, total } => {
                write!(f, "the script took {peak} of the host's memory (RAM) at most")?;
                if let Some(total) = total {
                    write!(f, " of the {total} that it may have here")?;
                }
                f.write_str(", in all its processes; a real run needs as much")
            }
            Note::HostShared(shared) => write!(
                f,
                "the script's processes shared up to {shared} through /dev/shm, as DataLoader workers do with batches. A container has 64 MiB by default; `docker run --shm-size=8g` sets more"
            ),
            Note::Remark(Remark { text, .. }) => f.write_str(text),
        }
    }
}

fn sizes_unknown(
    f: &mut fmt::Formatter<'_>,
    lines: &[CodeLine],
    finders: &[String],
) -> fmt::Result {
    f.write_str("the answer depends on values that a phantom does not compute: ")?;
    if let Some(first) = lines.first() {
        f.write_str("sizes follow from values that read as 0 at ")?;
        for (i, line) in lines.iter().enumerate() {
            write!(f, "{}{line}", if i == 0 { "" } else { ", " })?;
        }
        write!(f, " (give one: --assume {first}=NUMBER)")?;
    }
    if !finders.is_empty() {
        let and = if lines.is_empty() { "sizes follow from" } else { ", and from" };
        write!(f, "{and} the results of {}", finders.join(" and "))?;
    }
    Ok(())
}

fn steps(f: &mut fmt::Formatter<'_>, seen: Seen, steady: bool) -> fmt::Result {
    let times = seen.counted.times(seen.steps);
    let whole = if seen.whole { "the script ran to its end:" } else { "seen:" };
    let of = seen.steps_in_all().filter(|it| !seen.whole && u64::from(seen.steps) < *it);
    let times = of.map_or_else(|| times.clone(), |of| format!("{times} of {}", grouped(of)));
    match (seen.steps, seen.counted) {
        (1, Counted::Steps) if !seen.whole && !seen.ended => {
            return f.write_str(
                "only 1 training step was seen: later steps often need more (optimizer state)",
            );
        }
        _ => write!(f, "{whole} {times}")?,
    }
    if seen.evaluation && seen.counted != Counted::ForwardPasses {
        f.write_str(" and an evaluation")?;
    }
    if seen.brought_forward {
        f.write_str("; plimsoll had the evaluation come early, by a shorter interval")?;
    }
    if seen.epochs_cut {
        f.write_str("; plimsoll ended the epochs early (--until-exit runs all)")?;
    }
    if seen.counted != Counted::Steps {
        f.write_str("; the script has no optimizer")?;
    }
    match (steady, seen.whole) {
        (true, _) => write!(f, "; memory was the same in the last two {}", seen.counted.several()),
        (false, true) => Ok(()),
        (false, false) => f.write_str("; memory was still changing: later steps may need more"),
    }
}

fn errors(count: usize) -> String {
    match count {
        1 => "an out-of-memory error".to_owned(),
        _ => format!("{count} out-of-memory errors"),
    }
}

impl fmt::Display for CodeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit(['/', '\\']).next().unwrap_or_default();
        write!(f, "{name}:{}", self.line)
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.lines().next().unwrap_or_default();
        f.write_str(&self.class)?;
        if !message.is_empty() {
            write!(f, ": {message}")?;
        }
        match &self.user_frame {
            Some(line) => write!(f, " ({line})"),
            None => Ok(()),
        }
    }
}
