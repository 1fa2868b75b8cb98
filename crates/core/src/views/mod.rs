//! The results for people ([`text`]) and for programs ([`wire`]). Nothing is computed here.

pub mod explain_text;
pub mod explain_wire;
pub mod text;
pub mod wire;
