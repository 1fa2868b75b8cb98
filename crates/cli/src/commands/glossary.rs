//! `plimsoll glossary`: the words of the reports.

use plimsoll_core::{
    spelling,
    views::glossary::{self, WORDS},
};

use crate::{exit::Exit, options::cli::GlossaryArgs, output::Output};

/// Widths that a text is made for.
const WIDTHS: (u16, u16) = (60, 100);
/// Where the width is not known.
const USUAL: u16 = 80;

pub(crate) fn run(args: &GlossaryArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let styles = out.styles();
    let width = out.width(WIDTHS, USUAL);
    let word = args.word.join(" ");
    if word.is_empty() {
        out.text(&glossary::text(WORDS, styles, width).to_string())?;
        return Ok(Exit::Fits);
    }
    let Some(found) = glossary::find(&word) else {
        let known: Vec<&str> = WORDS.iter().map(|it| it.0).collect();
        let rest = format!("it has {}", known.join(", "));
        let meant = spelling::meant_or(&word, &known, &rest);
        anyhow::bail!("the glossary has no word {word:?}{meant}");
    };
    out.text(&glossary::text([found], styles, width).to_string())?;
    Ok(Exit::Fits)
}
