//! What a search found, for people and for programs. Nothing is computed here.

pub mod largest;
pub mod plan;
pub mod serving;
