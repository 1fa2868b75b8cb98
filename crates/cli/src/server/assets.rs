//! The page's own files (`web/`), as they are and all in one file.

use base64::Engine as _;
use plimsoll_core::scene::Grouping;

use crate::server::answers::{Answer, Gallery, Kind, Reply};

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
    "words.js",
    "dom.js",
    "api.js",
    "state.js",
    "palette.js",
    "raster.js",
    "details.js",
    "timeline.js",
    "flame.js",
    "peak.js",
    "segments.js",
    "growth.js",
    "whatif.js",
    "ranks.js",
    "main.js",
];

/// Moments that a page in one file carries, beside the peak.
const MOMENTS: usize = 12;
/// Blocks whose stacks it carries.
const BLOCKS: usize = 2500;
/// Columns of its picture.
const COLUMNS: u32 = 3000;

/// The file at `path`; there are no others than these.
pub(crate) fn find(path: &str) -> Option<Answer> {
    let path = path.split('?').next().unwrap_or_default();
    let (kind, text) = match path {
        "" => (Kind::Html, INDEX),
        "style.css" => (Kind::Css, STYLE),
        "icon.svg" => (Kind::Svg, ICON),
        _ => (Kind::Script, MODULES.iter().find(|it| it.0 == path)?.1),
    };
    Some(Ok(Reply { kind, bytes: text.as_bytes().to_vec() }))
}

/// The page with everything in it, and with the answers that it needs most.
pub(crate) fn one_file(gallery: &Gallery<'_>) -> String {
    let mut script = String::new();
    for (_, text) in MODULES {
        script += &without_imports(text);
    }
    let data = answers(gallery).replace('<', "\\u003c");
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'";
    let icon = base64::engine::general_purpose::STANDARD.encode(ICON);
    INDEX
        .replace(
            "<meta charset=\"utf-8\">",
            &format!("<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">"),
        )
        .replace("href=\"icon.svg\"", &format!("href=\"data:image/svg+xml;base64,{icon}\""))
        .replace("<link rel=\"stylesheet\" href=\"style.css\">", &format!("<style>\n{STYLE}</style>"))
        .replace(
            "<script type=\"module\" src=\"main.js\"></script>",
            &format!(
                "<script type=\"application/json\" id=\"answers\">{data}</script>\n<script type=\"module\">\n{script}</script>"
            ),
        )
}

/// A module's text where all modules share one scope.
fn without_imports(text: &str) -> String {
    let mut res = String::new();
    let mut in_import = false;
    for line in text.lines() {
        if line.starts_with("import ") {
            in_import = true;
        }
        if !in_import {
            res += line.strip_prefix("export ").unwrap_or(line);
            res.push('\n');
        }
        if in_import && line.ends_with(';') {
            in_import = false;
        }
    }
    res
}

/// The answers by what was asked, as one JSON object.
fn answers(gallery: &Gallery<'_>) -> String {
    let mut members: Vec<String> = Vec::new();
    let mut put = |path: &str| {
        let Some(Ok(Reply { kind, bytes })) = gallery.answer(path) else { return };
        let value = if kind == Kind::Columns {
            format!("{:?}", base64::engine::general_purpose::STANDARD.encode(bytes))
        } else {
            String::from_utf8_lossy(&bytes).into_owned()
        };
        members.push(format!("{path:?}:{value}"));
    };
    ["api/overview", "api/analysis", "api/cards"].into_iter().for_each(&mut put);
    for (r, scene) in gallery.scenes().enumerate() {
        put(&format!("api/marks?r={r}"));
        let facts = scene.facts();
        for (axis, to) in [("events", u64::from(scene.end())), ("time", facts.micros + 1)] {
            let pools = 1 < scene.groups(Grouping::Pool).len();
            for by in ["category", "line"].into_iter().chain(pools.then_some("pool")) {
                let least = facts.peak_allocated.0 / 2000;
                put(&format!(
                    "api/window?r={r}&axis={axis}&from=0&to={to}&columns={COLUMNS}&least={least}&by={by}"
                ));
            }
        }
        let refused = scene.refusals().into_iter().rev().map(|it| it.position);
        let steps = scene.steps().into_iter().map(|it| it.end.min(scene.end() - 1));
        let last = scene.end() - 1;
        let mut moments: Vec<u32> =
            [last].into_iter().chain(refused).chain(steps).take(MOMENTS).collect();
        moments.push(facts.peak_position);
        moments.sort_unstable();
        moments.dedup();
        for position in &moments {
            put(&format!("api/moment?r={r}&position={position}"));
            put(&format!("api/map?r={r}&position={position}"));
        }
        for life in scene.largest_lives(BLOCKS) {
            put(&format!("api/block?r={r}&life={life}"));
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
    fn imports_go_and_exports_stay() {
        let text = "import {a,\n  b} from \"./x.js\";\nexport const c = 1;\nlet d;\n";
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
