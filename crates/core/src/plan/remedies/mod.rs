//! The remedies there are. One file is one technique: what it is, what it does to the numbers, its manual page with
//! what a person would write. How it is applied inside a process is the agent's, in a file of the same name.

mod adafactor;
mod allocator;
mod attention;
mod autocast;
mod autocast_fp16;
mod bucket_view;
mod channels_last;
mod checkpoint;
mod chunked_loss;
mod depthwise;
mod detach_losses;
mod empty_cache;
mod foreach;
mod fsdp2;
mod fused;
mod inplace_activations;
mod lora;
mod metrics_on_cpu;
mod micro_batches;
mod model_parallel;
mod no_grad_evaluation;
mod offload;
mod optimizer_8bit;
mod optimizer_in_backward;
mod optimizer_offload;
mod parameter_offload;
mod pruning;
mod pure_bf16;
mod quantization;
mod set_to_none;
mod sgd;
mod shorter_sequence;
mod smaller_model;
mod tf32;
mod zero1;

use super::{
    Remedy,
    change::{Edit, Place, Site},
};

/// What a remedy does to the numbers that training computes; a later one does more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Numbers {
    /// The same, up to the rounding of sums in another order.
    Same,
    /// Others of the same kind: other random numbers, other batch statistics.
    Statistics,
    /// Less precision.
    Precision,
    /// Another way to train: what it comes to is to be found out.
    Training,
}

/// Who decides that a remedy is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The search tries it.
    Usual,
    /// The search tries it if somebody named it, and a plan may hold it.
    Asked,
    /// Only a person can do it; it is said and never applied.
    ByHand,
}

/// One technique.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// How it is called, everywhere.
    pub id: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// Who decides.
    pub offer: Offer,
    /// The edits of a script that a person would make; none where the places are not certain.
    pub(super) change: fn(&Remedy, &Place<'_>) -> Option<Vec<Edit>>,
    /// The manual page, in Markdown.
    pub page: &'static str,
}

/// Every remedy, the cheapest in time first as far as that can be said of all programs. What one really costs is
/// counted on the phantom.
pub const CATALOGUE: &[Kind] = &[
    fused::KIND,
    set_to_none::KIND,
    chunked_loss::KIND,
    inplace_activations::KIND,
    attention::KIND,
    channels_last::KIND,
    autocast::KIND,
    autocast_fp16::KIND,
    foreach::KIND,
    bucket_view::KIND,
    no_grad_evaluation::KIND,
    detach_losses::KIND,
    zero1::KIND,
    fsdp2::KIND,
    model_parallel::KIND,
    optimizer_in_backward::KIND,
    micro_batches::KIND,
    optimizer_8bit::KIND,
    checkpoint::KIND,
    optimizer_offload::KIND,
    offload::KIND,
    parameter_offload::KIND,
    pure_bf16::KIND,
    adafactor::KIND,
    sgd::KIND,
    empty_cache::KIND,
    metrics_on_cpu::KIND,
    shorter_sequence::KIND,
    lora::KIND,
    quantization::KIND,
    smaller_model::KIND,
    depthwise::KIND,
    pruning::KIND,
    allocator::KIND,
    tf32::KIND,
];

/// The remedy called `id`.
pub fn find(id: &str) -> Option<Kind> {
    CATALOGUE.iter().find(|it| it.id == id).copied()
}

impl Numbers {
    /// In words.
    pub const fn shown(self) -> &'static str {
        match self {
            Numbers::Same => "same",
            Numbers::Statistics => "dropout, batch-norm",
            Numbers::Precision => "less precise",
            Numbers::Training => "another training",
        }
    }
}

impl Kind {
    /// What a person would write, in plain PyTorch: the code of the manual page.
    pub fn snippet(&self) -> &'static str {
        let by_hand = self.page.split_once("## By hand").map_or("", |it| it.1);
        let mut parts = by_hand.split("```").skip(1);
        parts.next().and_then(|it| it.split_once('\n')).map_or("", |it| it.1.trim_end())
    }
}

/// What depends on the script too much for an edit that is certain.
fn by_hand(_: &Remedy, _: &Place<'_>) -> Option<Vec<Edit>> {
    None
}

/// A call with one option more, unless it says one of `instead_of` already.
fn with_option(site: &Site, instead_of: &[&str], option: &str) -> Option<Edit> {
    let call = site.call.as_ref().filter(|it| it.plain)?;
    let is_said = instead_of.iter().any(|it| call.keywords.contains_key(*it));
    (!is_said).then_some(Edit::insert(&site.file, call.end?, &format!(", {option}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_each_page_says_what_it_is_about() {
        for kind in CATALOGUE {
            assert_eq!(CATALOGUE.iter().filter(|it| it.id == kind.id).count(), 1, "{}", kind.id);
            assert_eq!(kind.page.lines().next(), Some(&*format!("# {}", kind.id)));
            for part in
                ["What it does", "When it applies", "What it changes in the numbers", "By hand"]
            {
                assert!(kind.page.contains(&format!("\n## {part}\n")), "{}: {part}", kind.id);
            }
            assert!(!kind.snippet().is_empty() && !kind.snippet().contains("```"), "{}", kind.id);
        }
    }

    #[test]
    fn what_changes_training_is_never_used_unasked() {
        for kind in CATALOGUE.iter().filter(|it| it.numbers == Numbers::Training) {
            assert_ne!(kind.offer, Offer::Usual, "{}", kind.id);
        }
    }
}
