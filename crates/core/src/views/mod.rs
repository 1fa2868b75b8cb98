//! The results for people ([`text`], [`replay`]) and for programs ([`wire`]). Nothing is computed here.

pub mod explain_text;
pub mod explain_wire;
mod ranks;
pub mod replay;
pub mod text;
pub mod wire;
