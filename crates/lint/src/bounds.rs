//! How much of a source is read. Sources come from strangers, and what reads one calls itself for whatever stands within something else:
//! what is larger, nests deeper or takes more steps than anybody writes is left out before it takes memory, with a sentence.

use std::{cell::Cell, fmt};

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer};

/// The bytes of a source, or of a notebook's code.
pub(crate) const LARGEST: usize = 4 << 20;
/// Its words and signs: a syntax tree takes some hundred bytes for each.
const MOST_TOKENS: usize = 600_000;
/// How many things may stand in each other: brackets, blocks, operators, the parts of `a.b.c`. Python itself stops at 200 brackets and
/// 100 blocks, and at a thousand operators or so.
const DEEPEST: usize = 1000;
/// Expressions that are looked at, names that are remembered, events that are gone through. A file of 27,000 lines takes half a million.
pub(crate) const MOST_STEPS: u64 = 5_000_000;
/// What a thread needs for all that, in a debug build.
pub(crate) const STACK: usize = 48 << 20;

/// Why a source was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMuch {
    /// More than [`LARGEST`].
    Large,
    /// More than [`MOST_TOKENS`].
    Tokens,
    /// Deeper than [`DEEPEST`].
    Deep,
    /// More than [`MOST_STEPS`].
    Steps,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooMuch::Large => write!(f, "it has more than {} MiB of code", LARGEST >> 20),
            TooMuch::Tokens => write!(f, "it has more than {MOST_TOKENS} tokens"),
            TooMuch::Deep => write!(
                f,
                "it nests more than {DEEPEST} brackets, blocks, operators or parts of a name"
            ),
            TooMuch::Steps => write!(
                f,
                "reading it needs more than {} million operations: it has too many nested loops, names or functions",
                MOST_STEPS / 1_000_000
            ),
        }?;
        f.write_str(", so plimsoll skipped it; no script that people write is as large")
    }
}

/// Whether a source can be parsed and walked: looked at token by token, without anything that grows with it but a stack of brackets.
pub(crate) fn check(text: &str, mode: Mode) -> Result<(), TooMuch> {
    if LARGEST < text.len() {
        return Err(TooMuch::Large);
    }
    let mut lexer = lexer::lex(text, mode);
    let mut nesting = Nesting::default();
    for _ in 0..MOST_TOKENS {
        let kind = lexer.next_token();
        if kind == TokenKind::EndOfFile {
            return Ok(());
        }
        nesting.take(kind);
        if DEEPEST < nesting.depth() {
            return Err(TooMuch::Deep);
        }
    }
    Err(TooMuch::Tokens)
}

/// How deep a syntax tree is at most, token by token: never less than it is, and not much more.
#[derive(Debug)]
struct Nesting {
    blocks: usize,
    /// Open brackets; the first is the line itself.
    open: Vec<Open>,
    /// What came last may stand before an operator of two sides.
    is_operand: bool,
}

/// What stands around what comes next, since the last comma.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Around the bracket.
    before: usize,
    /// What reaches to the comma: `lambda`, `if`, `not`, and the operators of sums, each of which has all before it on its left.
    loose: usize,
    /// What binds tighter than a sum: products, powers, signs, calls, the parts of a name. A sum begins anew on its right side.
    tight: usize,
    /// The most of those so far.
    tightest: usize,
    /// Lambdas whose colon has not come: their commas end nothing.
    lambdas: usize,
}

impl Open {
    fn depth(&self) -> usize {
        self.before + self.loose + self.tightest
    }

    fn within(before: usize) -> Open {
        Open { before, ..Open::default() }
    }

    fn tighter(&mut self) {
        self.tight += 1;
        self.tightest = self.tightest.max(self.tight);
    }
}

impl Default for Nesting {
    fn default() -> Nesting {
        Nesting { blocks: 0, open: vec![Open::default()], is_operand: false }
    }
}

impl Nesting {
    fn depth(&self) -> usize {
        self.blocks + self.open.last().map_or(0, Open::depth)
    }

    fn take(&mut self, kind: TokenKind) {
        use TokenKind::{
            Amper, And, Await, CircumFlex, Colon, Comma, Comment, Dedent, Dot, DoubleSlash,
            DoubleStar, EqEqual, Equal, FStringEnd, FStringStart, Greater, GreaterEqual, In,
            Indent, Is, Lambda, Lbrace, LeftShift, Less, LessEqual, Lpar, Lsqb, Minus, Newline,
            NonLogicalNewline, NotEqual, Or, Percent, Plus, Rbrace, RightShift, Rpar, Rsqb, Semi,
            Slash, Star, TStringEnd, TStringStart, Tilde, Vbar,
        };
        let is_behind_operand = self.is_operand;
        let Some(last) = self.open.last_mut() else { return };
        match kind {
            Indent => self.blocks += 1,
            Dedent => self.blocks = self.blocks.saturating_sub(1),
            // A bracket that was never closed ends with its statement, too.
            Newline => {
                self.open.truncate(1);
                self.open[0] = Open::default();
            }
            Semi => *last = Open::within(last.before),
            Lpar | Lsqb | Lbrace | FStringStart | TStringStart => {
                let before = last.depth() + 1;
                self.open.push(Open::within(before));
            }
            Rpar | Rsqb | Rbrace | FStringEnd | TStringEnd => {
                if 1 < self.open.len() {
                    self.open.pop();
                }
                // `f()()()`; the parts of a text stand beside each other.
                if let (Rpar | Rsqb, Some(it)) = (kind, self.open.last_mut()) {
                    it.tighter();
                }
            }
            Comma if last.lambdas == 0 => *last = Open::within(last.before),
            Comma => {}
            Colon => last.lambdas = last.lambdas.saturating_sub(1),
            Lambda => {
                last.lambdas += 1;
                last.loose += 1;
            }
            // `a and b and c` is one thing with three parts; so are `a < b < c` and `a = b = c`.
            And | Or | Is | In | Less | Greater | LessEqual | GreaterEqual | EqEqual | NotEqual
            | Equal => last.tight = 0,
            Plus | Minus | Vbar | Amper | CircumFlex | LeftShift | RightShift
                if is_behind_operand =>
            {
                last.loose += 1;
                last.tight = 0;
            }
            Plus
            | Minus
            | Tilde
            | Star
            | DoubleStar
            | Slash
            | DoubleSlash
            | Percent
            | TokenKind::At
            | Dot
            | Await => last.tighter(),
            other
                if other.is_operator() || other.is_keyword() || other == TokenKind::ColonEqual =>
            {
                last.loose += 1;
            }
            _ => {}
        }
        if !matches!(kind, Comment | NonLogicalNewline) {
            self.is_operand = matches!(kind, Rpar | Rsqb | Rbrace | FStringEnd | TStringEnd)
                || !kind.is_operator() && !kind.is_non_soft_keyword()
                || kind.is_singleton();
        }
    }
}

/// The steps that reading a file has taken.
#[derive(Debug)]
pub(crate) struct Steps {
    left: Cell<u64>,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { left: Cell::new(MOST_STEPS) }
    }
}

impl Steps {
    /// Takes `n`; whether there were as many. Once there are not, there are none.
    pub(crate) fn take(&self, n: usize) -> bool {
        let left = self.left.get().checked_sub(n as u64);
        self.left.set(left.unwrap_or(0));
        left.is_some_and(|it| it != 0)
    }

    /// Takes as many as going through a text of `len` bytes takes.
    pub(crate) fn take_text(&self, len: usize) -> bool {
        self.take(1 + len / 64)
    }

    /// Whether there are none left: what was found until here is not all.
    pub(crate) fn are_over(&self) -> bool {
        self.left.get() == 0
    }
}
