//! The largest part of what was live when memory ran out, where no rule has a name for it: which line made it, in which modules, who stores it, and
//! what would give it back.

use std::collections::BTreeMap;

use crate::{
    codes::ProblemCode,
    explanation::choice::is_kept,
    findings::{self, Case, holders, place},
    prediction::{Category, origins::without_numbers, timeline::Stage},
    recording::{CodeLine, is_users_code},
    replay::BlockId,
    trace::EventId,
    units::Bytes,
};

/// Of the cause's bytes, in percent: a smaller part says nothing.
const LEAST_SHARE: u64 = 15;
/// One part in so many that a variable holds is worth its name.
const LEAST_HELD: u64 = 16;
/// So many variables are named.
const SHOWN_NAMES: usize = 3;

/// What one line made.
pub(super) struct Part {
    bytes: Bytes,
    count: usize,
    at: CodeLine,
    /// The line of a library that the user's line called.
    library_at: Option<CodeLine>,
    /// The modules that most of it is of, with `*` for numbers.
    module: Option<String>,
    /// Who holds it, most first, and how much these hold.
    holders: Vec<String>,
    held: Bytes,
    /// Autograd has it for a backward pass, as far as nobody holds it.
    for_backward: bool,
    /// So it does, although the modules are in evaluation mode.
    in_evaluation: bool,
}

/// The largest part of what makes the cause `code`, which is about `bytes`; live at `event`.
pub(super) fn of(case: &Case<'_>, event: EventId, code: ProblemCode, bytes: Bytes) -> Option<Part> {
    if !matches!(code, ProblemCode::Activations | ProblemCode::TooLarge) {
        return None;
    }
    let mut by_line: BTreeMap<CodeLine, Vec<BlockId>> = BTreeMap::new();
    for it in case.live_after(event).iter().filter(|it| is_kept(it.category)) {
        let at = case.line(it.block).or_else(|| case.line_of_backward(it.block));
        if let Some(at) = at.filter(|it| is_users_code(&it.file, it.line)) {
            by_line.entry(at).or_default().push(it.block);
        }
    }
    let (at, blocks) = by_line.into_iter().max_by_key(|(_, blocks)| case.sum(blocks))?;
    let sum = case.sum(&blocks);
    if sum.0 < bytes.0 / 100 * LEAST_SHARE {
        return None;
    }
    let of = |block: &BlockId| case.module(*block).map(without_numbers);
    let module = of_most(case, &blocks, sum, of);
    let library_at = of_most(case, &blocks, sum, |it| case.line_of_library(case.stack(*it)));
    let mut holders = holders(case, &blocks);
    holders.retain(|it| sum.0 / LEAST_HELD <= it.1.0);
    let is_looked_at = !case.run.recording.notes.keepers.is_empty();
    let evaluates = |it: &&BlockId| case.stage(**it) == Stage::Evaluation;
    let in_evaluation = case.run.recording.notes.marks.iter().any(|it| it.with_gradients)
        && blocks.len() < 2 * blocks.iter().filter(evaluates).count();
    let in_graph = |it: &&BlockId| {
        matches!(case.stage(**it), Stage::Forward | Stage::Loss)
            && case.evidence.category(**it) != Category::Inputs
    };
    Some(Part {
        bytes: sum,
        count: blocks.len(),
        at,
        library_at,
        module,
        held: holders.iter().map(|it| it.1).sum(),
        holders: holders.into_iter().map(|it| it.0).collect(),
        for_backward: is_looked_at
            && (in_evaluation || blocks.len() < 2 * blocks.iter().filter(in_graph).count()),
        in_evaluation,
    })
}

/// What more than half of `blocks` are of.
fn of_most<T: Ord>(
    case: &Case<'_>,
    blocks: &[BlockId],
    sum: Bytes,
    of: impl Fn(&BlockId) -> Option<T>,
) -> Option<T> {
    let mut found: BTreeMap<T, Bytes> = BTreeMap::new();
    for block in blocks {
        if let Some(it) = of(block) {
            *found.entry(it).or_default() += case.life(*block).size;
        }
    }
    let most = found.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.filter(|(_, bytes)| sum.0 / 2 < bytes.0).map(|(it, _)| it)
}

impl Part {
    /// The end of the sentence that has the cause.
    pub(super) fn sentence(&self) -> String {
        let n = findings::blocks(self.count);
        let library = self.library_at.as_ref();
        let called = library.map_or(String::new(), |it| format!(", which called {}", place(it)));
        let module = self.module.as_ref();
        let module = module.map_or(String::new(), |it| format!(", in module `{it}`"));
        format!(
            "; {} of that in {n} made at {}{called}{module}{}",
            self.bytes,
            place(&self.at),
            self.who()
        )
    }

    fn who(&self) -> String {
        match (self.names(), self.for_backward) {
            (Some(names), true) if self.held.0 * 2 < self.bytes.0 => {
                format!("; {names} {}, autograd the rest for the backward pass", self.verb())
            }
            (Some(names), _) => format!("; {names} {}", self.verb()),
            (None, true) => "; autograd stores it for the backward pass".to_owned(),
            (None, false) => String::new(),
        }
    }

    fn verb(&self) -> String {
        let verb = if self.holders.len() == 1 { "holds" } else { "hold" };
        if self.held < self.bytes {
            format!("{verb} {} of it", self.held)
        } else {
            format!("{verb} it")
        }
    }

    fn names(&self) -> Option<String> {
        let names = self.holders.get(..SHOWN_NAMES.min(self.holders.len()))?;
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// What to change.
    pub(super) fn remedy(&self) -> Option<String> {
        let of = match &self.module {
            Some(module) => format!("`{module}`"),
            None => format!("what {} computes", place(&self.at)),
        };
        if !self.for_backward || self.bytes.0 <= self.held.0 * 2 {
            return None;
        }
        Some(if self.in_evaluation {
            format!(
                "{of} is in evaluation mode, and gradients are on: if nothing there is trained, call it under `torch.no_grad()` and freeze it (`requires_grad_(False)`); `eval()` does neither"
            )
        } else {
            format!(
                "put `torch.utils.checkpoint.checkpoint` around {of}: the backward pass then computes it again, and nothing stores it"
            )
        })
    }
}
