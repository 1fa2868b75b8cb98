//! Python that nobody writes by hand: each shape that has taken memory, time or the stack of a reader, or could. Made here, so that
//! nothing large lies in the repository; also read by the binary's tests, with limits on the process.

use std::fmt::Write as _;

/// What becomes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is read to its end.
    Read,
    /// It is left out, and the sentence says this.
    LeftOut(&'static str),
}
use Then::{LeftOut, Read};

const DEEP: Then = LeftOut("more than 1000 brackets, blocks, operators or parts of a name");
const LARGE: Then = LeftOut("it has more than 4 MiB of code");
const TOKENS: Then = LeftOut("it has more than 600000 tokens");
const STEPS: Then = LeftOut("reading it needs more than 5 million operations");
const NOT_PYTHON: Then = LeftOut("this is not Python");

/// A file's name, its text, and what becomes of it.
pub(crate) type Source = (&'static str, String, Then);

fn each(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).map(line).collect()
}

/// `inside` within `n` of these.
fn within(n: usize, before: &str, inside: &str, after: &str) -> String {
    format!("{}{inside}{}", before.repeat(n), after.repeat(n))
}

/// `n` blocks in each other.
fn blocks(n: usize, head: impl Fn(usize) -> String, inside: &str) -> String {
    let mut res = each(n, |it| format!("{}{}\n", " ".repeat(it), head(it)));
    let _ = writeln!(res, "{}{inside}", " ".repeat(n));
    res
}

/// All of them.
pub(crate) fn sources() -> Vec<Source> {
    let mut res = deep();
    res.extend(wide());
    res.extend(entangled());
    res.extend(broken());
    res.extend(notebooks());
    res
}

/// Things in each other: as deep as is read, and deeper.
fn deep() -> Vec<Source> {
    vec![
        ("parens", format!("x={}", within(2_000_000, "(", "", ")")), DEEP),
        ("parens-900", format!("x={}", within(900, "(", "1", ")")), Read),
        ("lists", format!("x={}", within(1_000_000, "[", "", "]")), DEEP),
        ("lists-900", format!("x={}", within(900, "[", "", "]")), Read),
        ("braces", format!("x={}", "{".repeat(1_000_000)), DEEP),
        ("minus", format!("x={}1", "-".repeat(3_000_000)), DEEP),
        ("minus-900", format!("x={}1", "-".repeat(900)), Read),
        ("not", format!("x={}1", "not ".repeat(500_000)), DEEP),
        ("not-900", format!("x={}1", "not ".repeat(900)), Read),
        ("await", format!("async def f():\n  x={}y", "await ".repeat(500_000)), DEEP),
        ("sum", format!("x=b{}", "+b".repeat(20_000)), DEEP),
        ("sum-900", format!("x=b{}", "+b".repeat(900)), Read),
        ("power", format!("x=b{}", "**b".repeat(100_000)), DEEP),
        ("power-900", format!("x=b{}", "**b".repeat(900)), Read),
        ("attributes", format!("x=b{}", ".a".repeat(100_000)), DEEP),
        ("attributes-5000", format!("x=b{}", ".a".repeat(5_000)), DEEP),
        ("attributes-900", format!("x=b{}", ".a".repeat(900)), Read),
        ("subscripts", format!("x=b{}", "[0]".repeat(100_000)), DEEP),
        ("subscripts-900", format!("x=b{}", "[0]".repeat(900)), Read),
        ("calls", format!("x=f{}", "()".repeat(100_000)), DEEP),
        ("calls-900", format!("x=f{}", "()".repeat(900)), Read),
        ("methods-400", format!("x=f{}", ".a()".repeat(400)), Read),
        ("nested-calls", format!("x={}", within(100_000, "f(", "", ")")), DEEP),
        ("nested-calls-900", format!("x={}", within(900, "model(", "", ")")), Read),
        ("nested-appends-300", format!("x={}", within(300, "a.append(", "loss", ")")), Read),
        ("lambda", format!("x={}1", "lambda:".repeat(200_000)), DEEP),
        ("lambda-arguments", format!("x={}1", "lambda a=1,b=2:".repeat(100_000)), DEEP),
        ("lambda-900", format!("x={}1", "lambda a=1,b=2:".repeat(900)), Read),
        ("ternary", format!("x={}c", "a if b else ".repeat(100_000)), DEEP),
        ("ternary-left-400", format!("x={}", within(400, "(", "a", " if b else c)")), Read),
        ("comprehension", format!("x={}", within(50_000, "[", "a", " for a in b]")), DEEP),
        ("comprehension-400", format!("x={}", within(400, "[", "a", " for a in b]")), Read),
        ("generators", format!("x=[a{}]", " for a in b".repeat(100_000)), DEEP),
        ("fstrings", format!("x={}", within(100_000, "f'{", "1", "}'")), DEEP),
        ("fstrings-300", format!("x={}", within(300, "f'{", "1", "}'")), Read),
        ("format", format!("x=f\"{}\"", within(100_000, "{a:", "", "}")), DEEP),
        ("blocks", blocks(2500, |_| "if a:".to_owned(), "pass"), DEEP),
        ("blocks-400", blocks(400, |_| "if a:".to_owned(), "pass"), Read),
        ("functions-in-functions", blocks(90, |it| format!("def f{it}():"), "pass"), Read),
        ("classes-in-classes", blocks(400, |it| format!("class C{it}:"), "pass"), Read),
        ("with-in-with", blocks(400, |_| "with a as b:".to_owned(), "pass"), Read),
        ("match", format!("match a:\n  case {}: pass", within(100_000, "[", "", "]")), DEEP),
        ("match-900", format!("match a:\n  case {}: pass", within(900, "[", "", "]")), Read),
        ("match-or", format!("match a:\n  case 1{}: pass", "|1".repeat(200_000)), DEEP),
        ("walrus-400", format!("x={}", within(400, "(a:=", "1", ")")), Read),
        ("slices-900", format!("x={}", within(900, "a[", "1:2", "]")), Read),
        ("annotation-900", format!("x:{}", within(900, "a[", "b", "]")), Read),
        ("returned", format!("def f():\n return {}", within(50_000, "(", "1", ")")), DEEP),
    ]
}

/// Many things beside each other.
fn wide() -> Vec<Source> {
    vec![
        ("many-bytes", "x=1\n".repeat(1_100_000), LARGE),
        ("many-statements", "x\n".repeat(2_000_000), TOKENS),
        ("statements", "x\n".repeat(50_000), Read),
        ("statements-in-a-line", "x;".repeat(2_000_000), TOKENS),
        ("commas", format!("x=({})", "1,".repeat(2_000_000)), TOKENS),
        ("newlines", "\n".repeat(4_000_000), TOKENS),
        ("comparisons", format!("x=a{}", "<b".repeat(100_000)), Read),
        ("and", format!("x=a{}", " and b".repeat(100_000)), Read),
        ("dictionary", format!("x={{{}}}", each(100_000, |it| format!("-{it}:{it},"))), Read),
        ("strings", format!("x={}", "'a'".repeat(100_000)), Read),
        ("assignments", format!("{}1", "a=".repeat(100_000)), Read),
        ("starred", format!("f({})", "*a,".repeat(100_000)), Read),
        ("parts-of-an-fstring", format!("x=f'{}'", "{a}".repeat(100_000)), Read),
        ("decorators", format!("{}def f(): pass\n", "@a\n".repeat(100_000)), Read),
        ("elif", format!("if a: pass\n{}", "elif b: c=1\n".repeat(10_000)), Read),
        ("cases", format!("match a:\n{}", "  case 1: x=1\n".repeat(20_000)), Read),
        ("imports", each(30_000, |it| format!("import a{it}.b\n")), Read),
        ("comments", "# plimsoll: ignore\n".repeat(100_000), Read),
        ("a-long-text", format!("x='{}'", "a".repeat(3_900_000)), Read),
        ("a-long-name", format!("x={}", "a".repeat(3_900_000)), Read),
        ("blanks", format!("{}x", "\t".repeat(3_900_000)), NOT_PYTHON),
        ("continued", "\\\n".repeat(1_900_000), NOT_PYTHON),
        ("dots", format!("from {} import x", ".".repeat(3_900_000)), DEEP),
    ]
}

/// What a reader goes through again and again.
fn entangled() -> Vec<Source> {
    vec![
        ("loops-in-loops", blocks(25, |it| format!("for a{it} in b:"), "x=loss.item()"), STEPS),
        ("loops-in-loops-6", blocks(6, |it| format!("for a{it} in b:"), "x=loss.item()"), Read),
        ("names", each(10_000, |it| format!("a{it}=a{}+b{it}\n", it.max(1) - 1)), Read),
        (
            "names-and-branches",
            each(5_000, |it| format!("a{it}=1\nif b: c{it}=1\n")) + &"if b: a1=1\n".repeat(5_000),
            Read,
        ),
        (
            "names-and-functions",
            each(5_000, |it| format!("a{it}=1\n"))
                + &each(5_000, |it| format!("def f{it}(): pass\n")),
            Read,
        ),
        ("functions", each(10_000, |it| format!("def f{it}(a):\n  return f{}(a)\n", it / 2)), Read),
        (
            "functions-that-call-one",
            "def f(a):\n  f(a)\n".to_owned()
                + &each(5_000, |it| format!("def f{it}(a):\n  f(a)\n")),
            Read,
        ),
        ("classes", each(10_000, |it| format!("class C{it}(C{}): pass\n", it / 2)), Read),
        (
            "classes-of-many",
            format!("class A({}): pass\n", each(5_000, |it| format!("B{it},")))
                + &"class X(A): pass\n".repeat(10_000),
            Read,
        ),
        ("loops", "for a in loader:\n  loss.backward()\n".repeat(5_000), Read),
        (
            "loops-in-a-function",
            "def f(loader):\n".to_owned()
                + &"  for a in loader:\n    t+=model(a)\n    loss.backward()\n    opt.step()\n"
                    .repeat(5_000),
            STEPS,
        ),
        (
            "many-mistakes-in-a-line",
            "import torch\n".to_owned() + &"m.load_state_dict(torch.load('b'));".repeat(2_000),
            Read,
        ),
        (
            "nested-mistakes",
            format!(
                "for i in loader:\n  loss.backward()\n  {}",
                within(300, "a.append(", "loss", ")")
            ),
            Read,
        ),
        (
            "a-long-text-in-loops",
            blocks(18, |_| format!("for a in '{}':", "b".repeat(200_000)), "pass"),
            STEPS,
        ),
    ]
}

/// What is no Python: who reads it on begins again at each mistake.
fn broken() -> Vec<Source> {
    vec![
        ("quotes", "\"\n".repeat(200_000), NOT_PYTHON),
        ("opened-fstrings", "f\"{\n".repeat(100_000), DEEP),
        ("opened-long-fstrings", "f'''{".repeat(500_000), DEEP),
        ("opened-lines", "(\n".repeat(300_000), DEEP),
        ("ifs-in-a-line", "if x: ".repeat(300_000), DEEP),
        ("async", "async ".repeat(500_000), DEEP),
        ("stars", format!("x={}", "*".repeat(3_000_000)), DEEP),
        ("ats", "@".repeat(3_000_000), DEEP),
        ("dollars", "$".repeat(100_000), NOT_PYTHON),
        ("nothing", "\0".repeat(100_000), NOT_PYTHON),
        ("closed", ")".repeat(300_000), DEEP),
        (
            "blocks-in-an-open-bracket",
            format!("(\n{}", blocks(900, |_| "if a,b:".to_owned(), "pass")),
            NOT_PYTHON,
        ),
    ]
}

/// Names end in `.ipynb`.
fn notebooks() -> Vec<Source> {
    let of_cells = |cells: String| format!("{{\"cells\":[{cells}]}}");
    let code = |text: &str| format!("{{\"cell_type\":\"code\",\"source\":{text}}}");
    vec![
        ("deep.ipynb", "[".repeat(3_000_000), LeftOut("it is not a notebook")),
        ("cells.ipynb", of_cells(format!("{}{{}}", "{},".repeat(1_000_000))), Read),
        (
            "outputs.ipynb",
            of_cells(format!(
                "{{\"cell_type\":\"code\",\"source\":\"x=1\",\"outputs\":[\"{}\"]}}",
                "A".repeat(20_000_000)
            )),
            Read,
        ),
        ("parens.ipynb", of_cells(code(&format!("[\"x={}\"]", "(".repeat(1_000_000)))), DEEP),
        (
            "many-lines.ipynb",
            of_cells(code(&format!("\"{}\"", "\\n".repeat(5_000_000)))),
            LeftOut("it has more than 4 MiB of code"),
        ),
        (
            "many-pieces.ipynb",
            of_cells(code(&format!("[{}\"\"]", "\"\",".repeat(3_000_000)))),
            Read,
        ),
    ]
}
