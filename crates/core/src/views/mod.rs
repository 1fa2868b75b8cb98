//! The results for people ([`text`], [`replay`]) and for programs ([`wire`]). Nothing is computed here.

pub mod explain_text;
pub mod explain_wire;
pub mod replay;
pub mod text;
pub mod wire;

mod wrap;
