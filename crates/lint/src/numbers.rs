//! Whole numbers that stand in a script: where, and what is given them as a name.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::Ranged as _;

use crate::{
    bounds,
    text::{Lines, Place},
};

/// A whole number in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeNumber {
    /// Where it begins.
    pub at: Place,
    /// The byte of the text at which it begins.
    pub start: usize,
    /// As it is written.
    pub text: String,
    /// What it is given as: `batch_size` of `batch_size = 32` and of `f(batch_size=32)`.
    pub name: Option<String>,
}

/// Every whole number of a text, in its order; those in comments and in texts are none. A text that is too large to be read has none.
pub fn whole_numbers(text: &str) -> Vec<WholeNumber> {
    if bounds::check(text, Mode::Module).is_err() {
        return Vec::new();
    }
    let lines = Lines::of(text);
    let parsed = parse_unchecked(text, ParseOptions::from(Mode::Module));
    let of = |range| &text[range];
    let tokens: Vec<_> = parsed.tokens().iter().collect();
    let number = |(i, it): (usize, &&ruff_python_ast::token::Token)| {
        let name = match tokens.get(i.saturating_sub(2)..i) {
            Some([name, equal])
                if name.kind() == TokenKind::Name && equal.kind() == TokenKind::Equal =>
            {
                Some(of(name.range()).to_owned())
            }
            _ => None,
        };
        let start = it.range().start().to_usize();
        WholeNumber { at: lines.place(start), start, text: of(it.range()).to_owned(), name }
    };
    let whole = tokens.iter().enumerate().filter(|(_, it)| it.kind() == TokenKind::Int);
    whole.map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_names() {
        let text = "batch_size = 32  # not 64\nloader(data, batch_size=16, lr=0.1)\nx = [8, -4]\ny = '7'\nargs.n = 1_024\n";
        let shown: Vec<String> = whole_numbers(text)
            .iter()
            .map(|it| {
                let name = it.name.as_deref().unwrap_or("-");
                format!("{}:{} {} {name}", it.at.line, it.at.column, it.text)
            })
            .collect();
        assert_eq!(
            shown,
            ["1:14 32 batch_size", "2:25 16 batch_size", "3:6 8 -", "3:10 4 -", "5:10 1_024 n"]
        );
    }
}
