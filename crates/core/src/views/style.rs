//! How parts of a text for people are marked.

use std::fmt::{self, Display};

/// How parts of the text are marked; [`Styles::default`] marks nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Styles {
    /// Around good news.
    pub good: Style,
    /// Around bad news.
    pub bad: Style,
    /// Around what calls for attention.
    pub warn: Style,
    /// Around headings.
    pub heading: Style,
    /// Around what may be skipped.
    pub faint: Style,
}

/// What to write before and after a marked part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Before, an escape sequence or nothing.
    pub on: &'static str,
    /// After, likewise.
    pub off: &'static str,
}

impl Styles {
    /// The colours for a terminal.
    pub const COLOR: Styles = Styles {
        good: Style { on: "\x1b[1;32m", off: "\x1b[0m" },
        bad: Style { on: "\x1b[1;31m", off: "\x1b[0m" },
        warn: Style { on: "\x1b[33m", off: "\x1b[0m" },
        heading: Style { on: "\x1b[1m", off: "\x1b[0m" },
        faint: Style { on: "\x1b[2m", off: "\x1b[0m" },
    };
}

impl Style {
    /// `text` between the marks.
    pub fn of<T: Display>(self, text: T) -> impl Display {
        fmt::from_fn(move |f| write!(f, "{}{text}{}", self.on, self.off))
    }
}
