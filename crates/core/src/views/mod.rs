//! The results for people ([`text`]) and for programs ([`wire`]). Nothing is computed here.

pub mod text;
pub mod wire;
