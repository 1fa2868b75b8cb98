//! Cards as TOML: the catalogue's own text, and the files that users write.

use serde::Deserialize;

use crate::{
    cards::{Card, Knowledge, Provenance},
    units::Bytes,
};

/// A card that could not be found or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// No card has this name.
    #[error("no card is called {given:?}{}; `plimsoll cards` lists them", did_you_mean(.near))]
    NoSuchCard {
        /// What was given.
        given: String,
        /// The nearest names that exist, nearest first.
        near: Vec<String>,
    },
    /// The text is not TOML, or a value has the wrong type.
    #[error("not a card file: {0}")]
    Toml(String),
    /// A key that cards do not have.
    #[error("line {line}: a card has no key {key:?}{}; it has {}", did_you_mean(.near), KEYS.join(", "))]
    UnknownKey {
        /// What was given.
        key: String,
        /// The nearest keys that exist.
        near: Vec<String>,
        /// The line it stands on, from 1.
        line: usize,
    },
    /// A key that has no default is missing.
    #[error(
        "the card lacks `{key}`; give it, or start from a card of the catalogue with `like = \"rtx4090\"`"
    )]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value that no card can have.
    #[error("`{key}`: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was found and what was expected.
        why: String,
    },
}

/// The keys of a card file, in the order of the manual.
const KEYS: [&str; 23] = [
    "id",
    "aliases",
    "like",
    "name",
    "compute_capability",
    "total",
    "total_known",
    "context",
    "context_known",
    "sm_count",
    "gpcs",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "shared_per_block_optin",
    "shared_per_sm",
    "registers_per_sm",
    "l2",
    "clock_mhz",
    "memory_clock_mhz",
    "memory_bus_bits",
    "cudnn_known",
    "source",
    "memory",
];

/// A card as it is written. `total`, `context`, ... are sizes such as `"24GiB"`, or bytes.
#[derive(Clone, Debug, Default, Deserialize)]
struct CardText {
    id: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    like: Option<String>,
    name: Option<String>,
    compute_capability: Option<String>,
    #[serde(alias = "memory")]
    total: Option<SizeText>,
    total_known: Option<String>,
    context: Option<SizeText>,
    context_known: Option<String>,
    sm_count: Option<u32>,
    gpcs: Option<Vec<u32>>,
    max_threads_per_sm: Option<u32>,
    max_blocks_per_sm: Option<u32>,
    shared_per_block_optin: Option<SizeText>,
    shared_per_sm: Option<SizeText>,
    registers_per_sm: Option<u32>,
    l2: Option<SizeText>,
    clock_mhz: Option<u32>,
    memory_clock_mhz: Option<u32>,
    memory_bus_bits: Option<u32>,
    cudnn_known: Option<String>,
    source: Option<String>,
}

/// A size as text with a unit, or as bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum SizeText {
    Bytes(u64),
    Text(String),
}

/// Reads a card that a user describes. With `like` it starts from one of `known`; without, it has to say everything that has
/// no default.
pub(super) fn parse(text: &str, known: &[Card]) -> Result<Card, CardError> {
    refuse_unknown_keys(text)?;
    let text: CardText = toml::from_str(text).map_err(toml_error)?;
    let base = match &text.like {
        Some(like) => Some(find(known, like)?),
        None => None,
    };
    card(text, base)
}

/// Reads the catalogue: `[[card]]` tables, complete ones.
pub(super) fn catalogue_text(text: &str) -> Result<Vec<Card>, CardError> {
    #[derive(Deserialize)]
    struct File {
        card: Vec<CardText>,
    }
    let file: File = toml::from_str(text).map_err(toml_error)?;
    file.card.into_iter().map(|it| card(it, None)).collect()
}

/// The card whose id or alias is `given`, whatever its capitals, blanks and dashes.
pub(super) fn find<'a>(cards: &'a [Card], given: &str) -> Result<&'a Card, CardError> {
    let wanted = normal(given);
    let names = |card: &'a Card| {
        std::iter::once(&card.id).chain(&card.aliases).chain(std::iter::once(&card.name))
    };
    let found = cards.iter().find(|card| names(card).any(|it| normal(it) == wanted));
    found.ok_or_else(|| {
        let ids = cards.iter().flat_map(|it| std::iter::once(&it.id).chain(&it.aliases));
        CardError::NoSuchCard { given: given.to_owned(), near: nearest(given, ids) }
    })
}

fn card(text: CardText, base: Option<&Card>) -> Result<Card, CardError> {
    let or = |key: &'static str| move || CardError::Missing { key };
    let size = |key: &'static str, it: &Option<SizeText>, base: Option<Bytes>| match it {
        Some(SizeText::Bytes(bytes)) => Ok(Bytes(*bytes)),
        Some(SizeText::Text(text)) => match text.parse::<Bytes>() {
            // Texts such as `23.52GiB` are rounded; drivers give whole MiB, so never more than that.
            Ok(size) if Bytes::mib(1) <= size => Ok(Bytes(size.0 & !(Bytes::mib(1).0 - 1))),
            Ok(size) => Ok(size),
            Err(error) => Err(CardError::Value { key, why: error.to_string() }),
        },
        None => base.ok_or_else(or(key)),
    };
    let number = |key: &'static str, it: Option<u32>, base: Option<u32>| match it.or(base) {
        Some(0) => Err(CardError::Value { key, why: "found 0; expected at least 1".to_owned() }),
        Some(it) => Ok(it),
        None => Err(CardError::Missing { key }),
    };
    let known =
        |key: &'static str, it: &Option<String>, base: Option<Knowledge>| match it.as_deref() {
            Some("measured") => Ok(Knowledge::Measured),
            Some("reported") => Ok(Knowledge::Reported),
            Some("derived") => Ok(Knowledge::Derived),
            Some(other) => Err(CardError::Value {
                key,
                why: format!("found {other:?}; expected `measured`, `reported` or `derived`"),
            }),
            None => Ok(base.unwrap_or_default()),
        };
    let compute_capability = match &text.compute_capability {
        Some(text) => capability(text)?,
        None => base.map(|it| it.compute_capability).ok_or_else(or("compute_capability"))?,
    };
    let name = text.name.or_else(|| base.map(|it| it.name.clone())).ok_or_else(or("name"))?;
    let mhz = |key, it: Option<u32>, base: Option<u32>| {
        number(key, it.map(|it| it.saturating_mul(1000)), base)
    };
    let total = size("total", &text.total, base.map(|it| it.total))?;
    let context = size("context", &text.context, base.map(|it| it.context))?;
    if total <= context {
        let why = format!("found {total}; expected more than the CUDA context, which is {context}");
        return Err(CardError::Value { key: "total", why });
    }
    Ok(Card {
        id: text.id.unwrap_or_else(|| normal(&name)),
        aliases: text.aliases,
        name,
        compute_capability,
        total,
        context,
        sm_count: number("sm_count", text.sm_count, base.map(|it| it.sm_count))?,
        gpcs: text.gpcs.or_else(|| base.map(|it| it.gpcs.clone())).unwrap_or_default(),
        max_threads_per_sm: number(
            "max_threads_per_sm",
            text.max_threads_per_sm,
            base.map(|it| it.max_threads_per_sm),
        )?,
        max_blocks_per_sm: number(
            "max_blocks_per_sm",
            text.max_blocks_per_sm,
            base.map(|it| it.max_blocks_per_sm),
        )?,
        shared_per_block_optin: size(
            "shared_per_block_optin",
            &text.shared_per_block_optin,
            base.map(|it| it.shared_per_block_optin),
        )?,
        shared_per_sm: size("shared_per_sm", &text.shared_per_sm, base.map(|it| it.shared_per_sm))?,
        registers_per_sm: number(
            "registers_per_sm",
            text.registers_per_sm.or(Some(65_536)),
            base.map(|it| it.registers_per_sm),
        )?,
        l2: size("l2", &text.l2, base.map(|it| it.l2))?,
        clock_khz: mhz("clock_mhz", text.clock_mhz, base.map(|it| it.clock_khz))?,
        memory_clock_khz: mhz(
            "memory_clock_mhz",
            text.memory_clock_mhz,
            base.map(|it| it.memory_clock_khz),
        )?,
        memory_bus_bits: number(
            "memory_bus_bits",
            text.memory_bus_bits,
            base.map(|it| it.memory_bus_bits),
        )?,
        provenance: Provenance {
            total: known("total_known", &text.total_known, base.map(|it| it.provenance.total))?,
            context: known(
                "context_known",
                &text.context_known,
                base.map(|it| it.provenance.context),
            )?,
            cudnn: known("cudnn_known", &text.cudnn_known, base.map(|it| it.provenance.cudnn))?,
            note: text
                .source
                .or_else(|| base.map(|it| it.provenance.note.clone()))
                .unwrap_or_default(),
        },
    })
}

fn capability(text: &str) -> Result<(u32, u32), CardError> {
    let parts = text.split_once('.');
    parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).ok_or_else(
        || CardError::Value {
            key: "compute_capability",
            why: format!("found {text:?}; expected text such as \"8.9\""),
        },
    )
}

fn refuse_unknown_keys(text: &str) -> Result<(), CardError> {
    let table: toml::Table = text.parse().map_err(toml_error)?;
    let Some(key) = table.keys().find(|it| !KEYS.contains(&it.as_str())) else { return Ok(()) };
    let stands_here = |line: &str| {
        line.trim_start().trim_start_matches(['"', '\'', '[']).starts_with(key.as_str())
    };
    let line = 1 + text.lines().position(stands_here).unwrap_or(0);
    Err(CardError::UnknownKey { key: key.clone(), near: nearest(key, KEYS), line })
}

fn toml_error(error: toml::de::Error) -> CardError {
    CardError::Toml(error.to_string().trim_end().to_owned())
}

fn normal(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    name.replace("nvidia", "").replace("geforce", "").replace("tesla", "").replace("gb", "g")
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        [some @ .., last] => format!("; did you mean `{}` or `{last}`?", some.join("`, `")),
    }
}

/// The names that are nearest to `given`, at most three; none if none is near.
fn nearest(given: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let given = normal(given);
    let mut near: Vec<(usize, String)> = names
        .into_iter()
        .map(|it| (distance(&given, &normal(it.as_ref())), it.as_ref().to_owned()))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .collect();
    near.sort();
    let nearest = near.first().map(|(distance, _)| *distance);
    let near = near.into_iter().filter(|(distance, _)| Some(*distance) == nearest);
    near.take(3).map(|(_, name)| name).collect()
}

/// How many letters have to be changed, added, taken away or swapped with their neighbour
/// (Damerau and Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    // `rows[i][j]` is the distance of the first i letters of one and the first j of the other.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let above = &rows[i - 1];
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::{catalogue, parse};

    #[test]
    fn people_call_a_card_many_things() {
        for (given, id) in [
            ("h200", "h200"),
            ("RTX 4090", "rtx4090"),
            ("4090", "rtx4090"),
            ("rtx4090-24g", "rtx4090"),
            ("NVIDIA GeForce RTX 3060", "rtx3060-12g"),
            ("a100", "a100-40g"),
            ("A100-80GB", "a100-80g"),
            ("Tesla T4", "t4"),
            ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ] {
            assert_eq!(find(catalogue(), given).map(|it| it.id.as_str()), Ok(id), "{given}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        let error = |given: &str| find(catalogue(), given).unwrap_err().to_string();
        assert_eq!(
            error("rtx4900"),
            "no card is called \"rtx4900\"; did you mean `rtx4090`?; `plimsoll cards` lists them"
        );
        assert_eq!(error("voodoo2"), "no card is called \"voodoo2\"; `plimsoll cards` lists them");
    }

    #[test]
    fn a_card_of_ones_own() {
        let card =
            parse("like = \"4090\"\nname = \"mine, with a desktop\"\nmemory = \"22.5GiB\"\n")
                .unwrap();
        assert_eq!(
            (card.id.as_str(), card.total),
            ("minewithadesktop", Bytes::mib(22 * 1024 + 512))
        );
        assert_eq!((card.sm_count, card.compute_capability), (128, (8, 9)));

        let whole = r#"
            name = "Imaginary"
            compute_capability = "9.0"
            total = 100_000_000_000
            context = "500MiB"
            sm_count = 100
            max_threads_per_sm = 2048
            max_blocks_per_sm = 32
            shared_per_block_optin = 232448
            shared_per_sm = "228KiB"
            l2 = "50MiB"
            clock_mhz = 2000
            memory_clock_mhz = 3000
            memory_bus_bits = 5120
        "#;
        let card = parse(whole).unwrap();
        assert_eq!((card.total, card.clock_khz), (Bytes(100_000_000_000), 2_000_000));
        assert_eq!(card.registers_per_sm, 65_536);
    }

    #[test]
    fn errors_say_what_was_found_and_what_to_do() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error("name = ").starts_with("not a card file: TOML parse error at line 1"));
        assert_eq!(
            error("like = \"h200\"\n\nsmcount = 3\n"),
            format!(
                "line 3: a card has no key \"smcount\"; did you mean `sm_count`?; it has {}",
                KEYS.join(", ")
            )
        );
        assert_eq!(
            error("name = \"x\"\ncompute_capability = \"9.0\"\n"),
            "the card lacks `total`; give it, or start from a card of the catalogue with `like = \"rtx4090\"`"
        );
        assert_eq!(
            error("like = \"h200\"\ntotal = \"lots\"\n"),
            "`total`: cannot read \"lots\" as a size: expected a number and a unit, as in `22GiB`, `20GB` or `512MiB`"
        );
        assert_eq!(
            error("like = \"h200\"\ntotal = \"100MiB\"\n"),
            "`total`: found 100.0 MiB; expected more than the CUDA context, which is 760.0 MiB"
        );
        assert_eq!(
            error("like = \"h200\"\ncompute_capability = \"nine\"\n"),
            "`compute_capability`: found \"nine\"; expected text such as \"8.9\""
        );
        assert!(error("like = \"h2000\"\n").contains("did you mean `h200`"));
    }
}
