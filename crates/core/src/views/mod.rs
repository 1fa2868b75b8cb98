//! The results for people ([`text`], [`replay`]) and for programs ([`wire`]). Nothing is computed here.

pub mod alarm;
pub mod answer;
mod by_rank;
mod card_list;
pub mod diff;
mod end_words;
pub mod explain_text;
pub mod explain_wire;
pub mod flamegraph;
pub mod glossary;
pub mod live;
pub mod packed;
pub mod page;
pub mod perfetto;
pub mod ranks;
pub mod replay;
pub mod run;
pub mod schedulers;
mod serving;
pub mod style;
pub mod tables;
pub mod text;
pub mod verification;
pub mod wire;

mod wrap;
