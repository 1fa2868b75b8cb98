//! The page's own files (`web/`), as they are and all in one file.

use std::{borrow::Cow, io::Write as _, path::Path};

use base64::Engine as _;
use flate2::{Compression, write::ZlibEncoder};
use plimsoll_core::{cards, views::packed};

use crate::{
    files::bounded_file,
    server::answers::{Answer, Gallery, Kind, Reply},
};

const INDEX: &str = include_str!("../../../../web/index.html");
const STYLE: &str = include_str!("../../../../web/style.css");
const ICON: &str = include_str!("../../../../web/icon.svg");

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        /// The modules, each after those that it imports: in one file they follow each other.
        const MODULES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../web/", $name)))),*];
    };
}

modules![
    "unpack.js",
    "words.js",
    "dom.js",
    "state.js",
    "palette.js",
    "store.js",
    "api.js",
    "charts.js",
    "selection.js",
    "moments.js",
    "details.js",
    "align.js",
    "bands.js",
    "differs.js",
    "raster.js",
    "scale.js",
    "marks.js",
    "strip.js",
    "gestures.js",
    "picture.js",
    "second.js",
    "timeline.js",
    "flame.js",
    "peak.js",
    "events.js",
    "segments.js",
    "growth.js",
    "answer.js",
    "whatif.js",
    "ranks.js",
    "find.js",
    "live.js",
    "main.js",
];

/// The module that a page in one file runs as it is, because it unpacks the others.
const UNPACK: &str = "unpack.js";

/// Settings of the allocator whose what-ifs a page in one file carries: those that the page offers (`web/whatif.js`).
const SETTINGS: [Option<&str>; 7] = [
    None,
    Some(""),
    Some("expandable_segments:True"),
    Some("max_split_size_mb:128"),
    Some("roundup_power2_divisions:8"),
    Some("large_segment_size_mb:64"),
    Some("expandable_segments:True,roundup_power2_divisions:8"),
];
/// Columns of their curves.
const COLUMNS: u32 = 400;
/// Of longer recordings no what-ifs are made beforehand: each takes seconds.
const MOST_EVENTS: u32 = 2_000_000;

/// The file at `path`; there are no others than these.
pub(crate) fn find(path: &str) -> Option<Answer> {
    let path = path.split('?').next().unwrap_or_default();
    let (kind, text) = match path {
        "" => (Kind::Html, Cow::Owned(index())),
        "style.css" => (Kind::Css, file("style.css", STYLE)),
        "icon.svg" => (Kind::Svg, file("icon.svg", ICON)),
        _ => {
            let (name, text) = MODULES.iter().find(|it| it.0 == path)?;
            (Kind::Script, file(name, text))
        }
    };
    Some(Ok(Reply { kind, bytes: text.into_owned().into_bytes() }))
}

/// The page, which names all of its modules: a browser that finds them by their imports asks in five rounds.
fn index() -> String {
    let name = |it: &(&str, &str)| format!("<link rel=\"modulepreload\" href=\"{}\">\n", it.0);
    let names: String = MODULES.iter().map(name).collect();
    file("index.html", INDEX).replace("</head>", &format!("{names}</head>"))
}

/// A file of the page. A debug build takes it from where it was built, as long as that is there: who works on the
/// page reloads it.
fn file(name: &str, text: &'static str) -> Cow<'static, str> {
    if cfg!(debug_assertions) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web").join(name);
        if let Ok(text) = bounded_file::text(&path, bounded_file::SOURCE) {
            return Cow::Owned(text);
        }
    }
    Cow::Borrowed(text)
}

/// What a page in one file does first: it unpacks its style and its modules.
const BEGIN: &str = r#"
(async () => {
  try {
    for (const [id, tag] of [["page-style", "style"], ["page-code", "script"]]) {
      const node = document.createElement(tag);
      node.textContent = new TextDecoder().decode(await packedIn(id));
      if (tag === "script") node.type = "module";
      document.head.append(node);
    }
  } catch (error) {
    document.getElementById("main").textContent = `This page cannot unpack itself: ${error.message}. It needs a browser of 2023 or later.`;
  }
})();
"#;

/// The page with everything in it, and with all of the recordings.
pub(crate) fn one_file(gallery: &Gallery<'_>) -> String {
    let mut code = String::new();
    let mut begin = String::new();
    for (name, text) in MODULES {
        let text = without_imports(&file(name, text));
        if *name == UNPACK {
            begin += &text;
        } else {
            code += &text;
        }
    }
    begin += BEGIN;
    let mut data = tag("page-style", file("style.css", STYLE).as_bytes());
    data += &tag("page-code", code.as_bytes());
    data += &tag("answers", answers(gallery).as_bytes());
    for (r, scene) in gallery.scenes().enumerate() {
        data += &tag(&format!("scene-{r}"), &packed::scene(scene));
    }
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";
    let icon = base64::engine::general_purpose::STANDARD.encode(ICON);
    file("index.html", INDEX)
        .replace(
            "<meta charset=\"utf-8\">",
            &format!("<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">"),
        )
        .replace("href=\"icon.svg\"", &format!("href=\"data:image/svg+xml;base64,{icon}\""))
        .replace("<link rel=\"stylesheet\" href=\"style.css\">\n", "")
        .replace(
            "<script type=\"module\" src=\"main.js\"></script>",
            &format!("{data}<script>{begin}</script>"),
        )
}

/// Bytes as a part of a page: deflated, and in letters that end no tag.
fn tag(id: &str, bytes: &[u8]) -> String {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::best());
    // Memory takes all that is written.
    let packed = packer.write_all(bytes).and_then(|()| packer.finish()).unwrap_or_default();
    let text = base64::engine::general_purpose::STANDARD.encode(packed);
    format!("<script type=\"text/plain\" id=\"{id}\">{text}</script>\n")
}

/// A module's text where all modules share one scope, without what is for its readers: lines of comment and indents.
fn without_imports(text: &str) -> String {
    let mut res = String::new();
    let mut in_import = false;
    for line in text.lines() {
        if line.starts_with("import ") {
            in_import = true;
        }
        if !in_import && !line.trim_start().starts_with("//") {
            res += line.strip_prefix("export ").unwrap_or(line).trim_start();
            res.push('\n');
        }
        if in_import && line.ends_with(';') {
            in_import = false;
        }
    }
    res
}

/// What cannot be read from the columns, by what was asked, as one JSON object.
fn answers(gallery: &Gallery<'_>) -> String {
    let mut members: Vec<String> = Vec::new();
    let mut put = |path: &str| {
        if let Some(Ok(Reply { kind: Kind::Json, bytes })) = gallery.answer(path) {
            members.push(format!("{path:?}:{}", String::from_utf8_lossy(&bytes)));
        }
    };
    ["api/overview", "api/analysis", "api/cards"].into_iter().for_each(&mut put);
    for (r, scene) in gallery.scenes().enumerate() {
        put(&format!("api/marks?r={r}"));
        let facts = scene.facts();
        for index in 0..gallery.findings_of(r) {
            put(&format!("api/select?r={r}&of=finding%3A{index}&position=peak"));
        }
        if MOST_EVENTS < facts.events {
            continue;
        }
        for conf in SETTINGS {
            let conf =
                conf.map(|it| format!("&conf={}", it.replace(':', "%3A").replace(',', "%2C")));
            put(&format!("api/what-if?r={r}&columns={COLUMNS}{}", conf.unwrap_or_default()));
        }
        for card in cards::catalogue() {
            let capacity = card.total.saturating_sub(card.context);
            if capacity < facts.peak_reserved {
                put(&format!("api/what-if?r={r}&columns={COLUMNS}&capacity={}", capacity.0));
            }
        }
    }
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_share_no_name_and_follow_what_they_import() {
        let mut declared: Vec<String> = Vec::new();
        let mut known: Vec<&str> = Vec::new();
        for (name, text) in MODULES {
            for line in text.lines().filter(|it| !it.starts_with(' ')) {
                if let Some((_, from)) = line.split_once(" from \"./") {
                    let from = from.trim_end_matches("\";");
                    assert!(known.contains(&from), "{name} imports {from}, which comes later");
                }
                let line = line.strip_prefix("export ").unwrap_or(line);
                let words: Vec<&str> =
                    line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
                let at = usize::from(words.first() == Some(&"async"));
                if let Some("const" | "let" | "function" | "class") = words.get(at).copied() {
                    declared.extend(words.get(at + 1).map(|it| (*it).to_owned()));
                }
            }
            let is_one_line = |it: &str| it.matches('`').count().is_multiple_of(2);
            assert!(
                text.lines().all(is_one_line),
                "{name}: a text of several lines keeps no indent"
            );
            assert!(!text.contains("</script"), "{name} would end its own script");
            assert!(!text.contains("innerHTML"), "{name}: strings of a recording are text");
            known.push(name);
        }
        let mut once = declared.clone();
        once.sort();
        once.dedup();
        declared.sort();
        assert_eq!(declared, once, "two modules declare the same name");
    }

    #[test]
    fn the_settings_made_beforehand_are_those_that_the_page_offers() {
        let (_, text) = MODULES.iter().find(|it| it.0 == "whatif.js").unwrap();
        let (_, list) = text.split_once("const SETTINGS = [\n").unwrap();
        let (list, _) = list.split_once("];").unwrap();
        let values = list.lines().map(|line| line.split('"').nth(1).unwrap());
        let offered: Vec<Option<&str>> = values
            .filter(|value| *value != "own")
            .map(|value| (!value.is_empty()).then_some(if value == "default" { "" } else { value }))
            .collect();
        assert_eq!(offered, SETTINGS);
    }

    #[test]
    fn imports_go_and_exports_stay() {
        let text = "// Why.\nimport {a,\n  b} from \"./x.js\";\nexport const c = 1;\n  let d;\n";
        assert_eq!(without_imports(text), "const c = 1;\nlet d;\n");
    }

    #[test]
    fn there_are_no_paths_to_elsewhere() {
        for path in [
            "../Cargo.toml",
            "..%2fCargo.toml",
            "/etc/passwd",
            "web/main.js",
            "main.js/",
            "style.css/..",
        ] {
            assert!(find(path).is_none(), "{path}");
        }
        assert!(find("main.js").is_some());
    }
}
