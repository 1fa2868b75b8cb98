//! What `check` says: for people, for a pull request, and for what reads tests.

use std::fmt::Write as _;

use plimsoll_core::{
    printable::printable,
    units::{Bytes, change},
    views::text::Styles,
};
use serde_json::{Value, json};

use super::{
    checked::Checked,
    compared::{Change, LineChange, Verdict, opposed},
};
use crate::{commands::sarif, options::cli::CheckFormat, output};

fn place(it: &LineChange) -> String {
    let backward = if it.line.backward { ", backward" } else { "" };
    format!("{}:{} in {}{backward}", it.line.file, it.line.line, it.line.function)
}

pub(super) fn shown(checked: &[Checked], format: CheckFormat, styles: Styles) -> String {
    match format {
        CheckFormat::Text => text(checked, styles),
        CheckFormat::Json => json(checked),
        CheckFormat::Markdown => markdown(checked),
        CheckFormat::Junit => junit(checked),
        CheckFormat::Sarif => sarif(checked),
    }
}

/// What explains a change that no line of the peak does.
const ONLY_RESERVED: &str =
    "every line has the same memory at the peak of allocated memory; reserved memory peaks at";

/// Where that is.
fn reserved_at(it: &Checked) -> Option<&str> {
    let Verdict::Changed { totals, lines, .. } = &it.verdict else { return None };
    let at = it.is.as_ref()?.reserved_at.as_ref()?;
    let only_reserved = lines.is_empty() && totals.iter().any(|it| it.what == "reserved");
    only_reserved.then_some(at)
}

fn summary(checked: &[Checked]) -> String {
    let count = |is: fn(&Verdict) -> bool| checked.iter().filter(|it| is(&it.verdict)).count();
    let changed = count(|it| matches!(it, Verdict::Changed { .. }));
    let unknown = count(|it| matches!(it, Verdict::CouldNotTell(_)));
    let mut parts = vec![format!("{} unchanged", checked.len() - changed - unknown)];
    if changed != 0 {
        parts.push(format!("{changed} changed"));
    }
    if unknown != 0 {
        parts.push(format!("{unknown} unknown"));
    }
    let scripts = if checked.len() == 1 {
        "1 script".to_owned()
    } else {
        format!("{} scripts", checked.len())
    };
    format!("{scripts}: {}", parts.join(", "))
}

fn one_line(it: &Checked) -> String {
    let of =
        |name: &str| it.is.as_ref().and_then(|it| it.totals.get(name)).copied().unwrap_or_default();
    let gpu = printable(&it.gpu);
    format!("{} allocated, {} reserved, on {gpu}", of("allocated"), of("reserved"))
}

fn text(checked: &[Checked], styles: Styles) -> String {
    let mut res = String::new();
    for it in checked {
        match &it.verdict {
            Verdict::AsItWas => {
                let _ =
                    writeln!(res, "{} {}: {}", styles.good.of("AS IT WAS"), it.name, one_line(it));
            }
            Verdict::CouldNotTell(why) => {
                let why = printable(why);
                let _ = writeln!(res, "{} {}: {why}", styles.warn.of("COULD NOT TELL"), it.name);
            }
            Verdict::Changed { outcome, totals, categories, lines } => {
                let _ = writeln!(res, "{} {}: {}", styles.bad.of("CHANGED"), it.name, one_line(it));
                if let Some((was, is)) = outcome {
                    let _ = writeln!(res, "  {was} before, {is} now");
                }
                let took = it.was.as_ref().zip(it.is.as_ref());
                if let Some(words) = took.and_then(|(was, is)| opposed(was, is)) {
                    let _ = writeln!(res, "  {words}");
                }
                let row = |it: &Change| {
                    format!(
                        "  {:<16} {:>11} -> {:>11}  {}\n",
                        it.what,
                        it.was.to_string(),
                        it.is.to_string(),
                        change(it.was, it.is)
                    )
                };
                totals.iter().for_each(|it| res += &row(it));
                if !categories.is_empty() {
                    res += "  at the peak\n";
                    categories.iter().for_each(|it| res += &format!("  {}", row(it)));
                }
                if let Some(at) = reserved_at(it) {
                    let _ = writeln!(res, "  {ONLY_RESERVED} {}", printable(at));
                }
                if !lines.is_empty() {
                    res += "  by line\n";
                }
                for it in lines {
                    let _ = writeln!(
                        res,
                        "    {:>11} -> {:>11}  {} ({})",
                        it.was.to_string(),
                        it.is.to_string(),
                        place(it),
                        it.line.category
                    );
                    if !it.line.text.is_empty() {
                        let _ = writeln!(res, "        {}", it.line.text);
                    }
                }
            }
        }
    }
    let _ = writeln!(res, "{}", summary(checked));
    if checked.iter().any(|it| matches!(it.verdict, Verdict::Changed { .. })) {
        res += "if the change is intended: plimsoll check --update\n";
    }
    res
}

fn json(checked: &[Checked]) -> String {
    let change_of =
        |it: &Change| json!({ "what": it.what, "was_bytes": it.was.0, "is_bytes": it.is.0 });
    let line = |change: &LineChange| {
        json!({
            "file": change.line.file, "line": change.line.line, "function": change.line.function, "backward": change.line.backward,
            "category": change.line.category, "text": change.line.text, "was_bytes": change.was.0, "is_bytes": change.is.0,
        })
    };
    let scripts: Vec<Value> = checked
        .iter()
        .map(|script| {
            let mut res = json!({ "name": script.name, "gpu": script.gpu });
            if let Some(is) = &script.is {
                res["bytes"] = is
                    .totals
                    .iter()
                    .map(|(name, script)| (name.clone(), json!(script.0)))
                    .collect::<serde_json::Map<_, _>>()
                    .into();
            }
            match &script.verdict {
                Verdict::AsItWas => res["verdict"] = json!("as_it_was"),
                Verdict::CouldNotTell(why) => {
                    res["verdict"] = json!("could_not_tell");
                    res["why"] = json!(why);
                }
                Verdict::Changed { outcome, totals, categories, lines } => {
                    res["verdict"] = json!("changed");
                    res["outcome"] = json!(outcome);
                    res["totals"] = totals.iter().map(change_of).collect();
                    res["categories"] = categories.iter().map(change_of).collect();
                    res["lines"] = lines.iter().map(line).collect();
                }
            }
            res
        })
        .collect();
    format!("{:#}\n", json!({ "version": 1, "scripts": scripts }))
}

/// A comment for a pull request.
fn markdown(checked: &[Checked]) -> String {
    let mut res = format!("### GPU memory: {}\n\n", summary(checked));
    res += "| script | card | allocated | reserved | |\n|---|---|---|---|---|\n";
    for it in checked {
        let cell = |name: &str| {
            let is = it.is.as_ref().and_then(|it| it.totals.get(name)).copied();
            let was = it.was.as_ref().and_then(|it| it.totals.get(name)).copied();
            match (was, is) {
                (Some(was), Some(is)) if was != is => {
                    format!("{was} → {is} ({})", change(was, is))
                }
                (_, Some(is)) => is.to_string(),
                _ => String::new(),
            }
        };
        let word = match &it.verdict {
            Verdict::AsItWas => "unchanged",
            Verdict::Changed { .. } => "**changed**",
            Verdict::CouldNotTell(_) => "could not tell",
        };
        let _ = writeln!(
            res,
            "| {} | {} | {} | {} | {word} |",
            in_cell(&it.name),
            in_cell(&it.gpu),
            cell("allocated"),
            cell("reserved")
        );
    }
    for it in checked {
        match &it.verdict {
            Verdict::AsItWas => {}
            Verdict::CouldNotTell(why) => {
                let _ = write!(res, "\n**{}**: {}\n", marked(&it.name), marked(why));
            }
            Verdict::Changed { outcome, categories, lines, .. } => {
                let _ = write!(res, "\n**{}**\n\n", marked(&it.name));
                if let Some((was, is)) = outcome {
                    let _ = writeln!(res, "- {} before, {} now", marked(was), marked(is));
                }
                for it in categories {
                    let _ = writeln!(
                        res,
                        "- {}: {} → {} ({})",
                        marked(&it.what),
                        it.was,
                        it.is,
                        change(it.was, it.is)
                    );
                }
                if let Some(at) = reserved_at(it) {
                    let _ = writeln!(res, "- {ONLY_RESERVED} {}", marked(at));
                }
                if !lines.is_empty() {
                    res += "\n| line | was | is | |\n|---|---|---|---|\n";
                }
                for it in lines {
                    let _ = writeln!(
                        res,
                        "| {} {} | {} | {} | {} |",
                        in_cell(&place(it)),
                        in_cell(&it.line.text),
                        it.was,
                        it.is,
                        in_cell(&it.line.category)
                    );
                }
            }
        }
    }
    res
}

/// A name or a sentence in Markdown. One that is not plain is shown as code: nothing in it is markup, a link or a mention of somebody.
fn marked(text: &str) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || matches!(it, ' ' | '-');
    let text = printable(text.trim());
    if text.chars().all(is_plain) {
        return text.into_owned();
    }
    // Code ends with as many backticks as it began with.
    let most = text.split(|it| it != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(most + 1);
    let pad = if text.contains('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// The same in a table.
fn in_cell(text: &str) -> String {
    // A backslash takes the meaning of what follows, and a bar begins a cell in code, too.
    marked(text).replace("\\|", "\\ |").replace('|', "\\|")
}

/// What continuous integration reads as tests.
fn junit(checked: &[Checked]) -> String {
    // XML has no letters for what commands a terminal.
    let xml = |text: &str| {
        let text = output::text(text).replace('&', "&amp;").replace('<', "&lt;");
        text.replace('>', "&gt;").replace('"', "&quot;")
    };
    let count = |is: fn(&Verdict) -> bool| checked.iter().filter(|it| is(&it.verdict)).count();
    let mut res = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        res,
        "<testsuites><testsuite name=\"plimsoll check\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
        checked.len(),
        count(|it| matches!(it, Verdict::Changed { .. })),
        count(|it| matches!(it, Verdict::CouldNotTell(_))),
    );
    for it in checked {
        let _ = write!(
            res,
            "<testcase classname=\"memory\" name=\"{}\" time=\"{:.3}\">",
            xml(&it.name),
            it.seconds
        );
        let whole = text(std::slice::from_ref(it), Styles::default());
        match &it.verdict {
            Verdict::AsItWas => {}
            Verdict::Changed { .. } => {
                let _ =
                    write!(res, "<failure message=\"memory changed\">{}</failure>", xml(&whole));
            }
            Verdict::CouldNotTell(why) => {
                let _ = write!(res, "<error message=\"{}\"/>", xml(why));
            }
        }
        res += "</testcase>\n";
    }
    res + "</testsuite></testsuites>\n"
}

fn sarif(checked: &[Checked]) -> String {
    let rules = [
        (
            "memory-changed",
            "memory-changed",
            "a script needs more or less memory than its golden",
            "See docs/check.md.",
        ),
        (
            "could-not-tell",
            "could-not-tell",
            "a script could not be compared",
            "See docs/check.md.",
        ),
    ];
    let mut results = Vec::new();
    for it in checked {
        match &it.verdict {
            Verdict::AsItWas => {}
            Verdict::CouldNotTell(why) => results.push(sarif::Result {
                rule: "could-not-tell".to_owned(),
                level: "warning",
                message: format!("{}: {why}", it.name),
                file: None,
                region: [1, 1, 1, 1],
            }),
            Verdict::Changed { totals, lines, .. } => {
                let whole = totals.iter().map(|total| {
                    format!(
                        "{} {} -> {} ({})",
                        total.what,
                        total.was,
                        total.is,
                        change(total.was, total.is)
                    )
                });
                let whole = whole.collect::<Vec<_>>().join(", ");
                // Beside the line that changed most.
                let first = lines.iter().find(|it| it.is != Bytes::ZERO);
                let by = first
                    .map(|it| format!("; this line: {} -> {}", it.was, it.is))
                    .unwrap_or_default();
                let at = first.map_or(1, |it| usize::try_from(it.line.line).unwrap_or(1));
                results.push(sarif::Result {
                    rule: "memory-changed".to_owned(),
                    level: "error",
                    message: format!("{}: {whole}{by}", it.name),
                    file: first.map(|it| it.line.file.clone()),
                    region: [at, 1, at, 1],
                });
            }
        }
    }
    sarif::document(&rules, &results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_next_to_nothing_has_no_percentage() {
        let change = |what: &str, was, is| Change { what: what.to_owned(), was, is };
        let verdict = Verdict::Changed {
            outcome: None,
            totals: vec![change("allocated", Bytes::mib(400), Bytes::mib(300))],
            categories: vec![change("kept", Bytes(100), Bytes::kib(800))],
            lines: Vec::new(),
        };
        let is = Some(super::super::goldens::Took::default());
        let (name, gpu) = ("train".to_owned(), "t4".to_owned());
        let checked = [Checked { name, gpu, was: is.clone(), is, verdict, seconds: 0.0 }];
        let text = text(&checked, Styles::default());
        assert!(text.contains("300.0 MiB  -100.0 MiB, -25.0 %\n"), "{text}");
        assert!(text.contains("800.0 KiB  +799.9 KiB\n"), "{text}");
        let markdown = markdown(&checked);
        assert!(markdown.contains("- kept: 100 B → 800.0 KiB (+799.9 KiB)\n"), "{markdown}");
    }

    #[test]
    fn what_is_not_plain_is_code_in_markdown() {
        for (text, expected) in [
            ("train", "train"),
            ("small model-2", "small model-2"),
            ("CUDA context", "CUDA context"),
            ("@team", "`@team`"),
            ("a|b <img>\r", r"`a|b <img>`"),
            ("a\nb", r"`a\nb`"),
            ("a `` b", "``` a `` b ```"),
            ("", ""),
        ] {
            assert_eq!(marked(text), expected, "{text}");
        }
        assert_eq!(in_cell(r"a|b\|c"), r"`a\|b\ \|c`");
    }
}
