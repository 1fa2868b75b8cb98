//! The search for what makes a script fit: which run to make next, given what was run so far. It runs nothing itself.
//!
//! [`plans`] looks for the cheapest plan, [`largest_value`] for the largest value of a number in the command. Both are a
//! [`Search`]: it says what to run ([`Next`]), is told what came of it, and says in the end what it found.
//!
//! ```text
//! dialogue ── ask            what is asked and told, and the search as something that waits for answers
//! rules ladder left_out      what may be used, in which order, and what this program has no use for
//! candidate                  a plan that was run, and which of two is better
//! program                    the script: runs plans of it once each, and remembers what they told
//! evaluation                 what an evaluation takes by itself, which no remedy may reach
//! free tuning slack weakest fewest_blocks in_parts proof recipes measure nearest left advice    one question about it each
//! plans largest_value by_remedies                                   the searches, put together from these
//! found                      what came of the first of these
//! so_far                     what a search that is not over can say
//! ```

mod advice;
mod ask;
mod by_remedies;
mod candidate;
mod dialogue;
mod evaluation;
mod fewest_blocks;
mod found;
mod free;
mod ladder;
pub mod largest;
mod largest_value;
mod left_out;
mod measure;
mod nearest;
mod plans;
mod program;
mod proof;
mod recipes;
mod remaining;
mod rules;
mod scouts;
mod slack;
mod so_far;
#[cfg(test)]
pub(crate) mod tests;
mod tuning;
mod values;
mod weakest;

pub use self::{
    advice::Advice,
    ask::{
        ByHand, Failed, FewParts, Grows, Half, Look, Measure, Noted, On, Ran, Replay, Rewritten,
        Run, Steps, TooLarge, Took, Until,
    },
    by_remedies::WithRemedies,
    candidate::{Candidate, IfFound, Measured},
    dialogue::{Next, Said, Search, Waiting},
    found::{Found, WhySoFar},
    largest_value::{FoundValue, IfAllFound, largest_value},
    plans::plans,
    proof::Seen,
    recipes::{NotTried, Tried, WhyNot},
    remaining::{Fate, Remaining},
    rules::Rules,
    so_far::{Best, SoFar},
    values::{Range, ValueRun, WithLess},
};
