//! `plimsoll glossary`: the words of the reports.

use std::io::{self, Write};

use plimsoll_core::{
    spelling,
    views::{
        glossary::{self, WORDS},
        text::Styles,
    },
};

use crate::{
    cli::{Color, GlossaryArgs},
    exit::Exit,
};

/// Widths that a text is made for.
const WIDTHS: (u16, u16) = (60, 100);
/// Where the width is not known.
const USUAL: u16 = 80;

pub(crate) fn run(args: &GlossaryArgs, color: Color, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let styles = if color.is_on() { Styles::COLOR } else { Styles::default() };
    let width = terminal_size::terminal_size_of(io::stdout()).map_or(USUAL, |(it, _)| it.0);
    let width = usize::from(width.clamp(WIDTHS.0, WIDTHS.1));
    let word = args.word.join(" ");
    if word.is_empty() {
        super::write(out, &glossary::text(WORDS, styles, width).to_string())?;
        return Ok(Exit::Fits);
    }
    let Some(found) = glossary::find(&word) else {
        let known: Vec<&str> = WORDS.iter().map(|it| it.0).collect();
        let meant = spelling::meant(&word, &known);
        anyhow::bail!("there is no word {word:?} here{meant}; there are {}", known.join(", "));
    };
    super::write(out, &glossary::text([found], styles, width).to_string())?;
    Ok(Exit::Fits)
}
