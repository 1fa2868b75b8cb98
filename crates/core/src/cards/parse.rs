//! Cards as TOML: the catalogue's own text, and the files that users write.

use serde::Deserialize;

use crate::{
    cards::{
        Card, Knowledge, Nccl, Own, Provenance, Speeds, derived,
        error::{CardError, KEYS},
        names, parts,
    },
    printable::is_printable,
    spelling,
    units::Bytes,
};

/// The newest format of a card file.
const NEWEST: u32 = 1;

/// A card as it is written. `total`, `context`, ... are sizes such as `"24GiB"`, or bytes.
#[derive(Clone, Debug, Default, Deserialize)]
struct CardText {
    format: Option<u32>,
    id: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    usual: bool,
    like: Option<String>,
    name: Option<String>,
    chip: Option<String>,
    compute_capability: Option<String>,
    #[serde(alias = "memory")]
    total: Option<SizeText>,
    total_known: Option<String>,
    kept: Option<SizeText>,
    hidden: Option<SizeText>,
    context: Option<SizeText>,
    context_known: Option<String>,
    blas: Option<SizeText>,
    dnn: Option<SizeText>,
    sm_count: Option<u32>,
    clusters: Option<u32>,
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
    link_per_second: Option<SizeText>,
    between_per_second: Option<SizeText>,
    host_step_us: Option<u32>,
    nccl: Option<NcclText>,
    cudnn_known: Option<String>,
    source: Option<String>,
}

/// What NCCL takes, in bytes; see [`Nccl`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NcclText {
    ranks: u32,
    library: u64,
    tables: u64,
    alone: u64,
    ring: u64,
    ring_kernels: u64,
    peer_kernels: u64,
    send: u64,
    receive: u64,
}

impl NcclText {
    fn read(&self) -> Nccl {
        Nccl {
            ranks: self.ranks,
            library: Bytes(self.library),
            tables: Bytes(self.tables),
            alone: Bytes(self.alone),
            ring: Bytes(self.ring),
            ring_kernels: Bytes(self.ring_kernels),
            peer_kernels: Bytes(self.peer_kernels),
            send: Bytes(self.send),
            receive: Bytes(self.receive),
        }
    }
}

/// A size as text with a unit, or as bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum SizeText {
    Bytes(u64),
    Text(String),
}

/// What all cards of a compute capability have.
#[derive(Clone, Debug, Deserialize)]
struct Limits {
    compute_capability: String,
    max_threads_per_sm: u32,
    max_blocks_per_sm: u32,
    shared_per_block_optin: u64,
    shared_per_sm: u64,
}

/// A chip.
#[derive(Clone, Debug, Deserialize)]
struct Chip {
    name: String,
    generation: String,
    compute_capability: String,
    sm_count: u32,
    clusters: Option<u32>,
}

/// A slice that MIG cuts of some cards.
#[derive(Clone, Debug, Deserialize)]
struct Slice {
    cards: Vec<String>,
    profile: String,
    total: SizeText,
    sm_count: u32,
}

/// The catalogue as it is written.
#[derive(Clone, Debug, Deserialize)]
struct File {
    capability: Vec<Limits>,
    chip: Vec<Chip>,
    card: Vec<CardText>,
    #[serde(default)]
    mig: Vec<Slice>,
}

/// Everything that the catalogue's text says.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    limits: Vec<Limits>,
    chips: Vec<Chip>,
    pub(super) cards: Vec<Card>,
    /// Slices of them.
    pub(super) slices: Vec<Card>,
    /// Files that could not be read.
    pub(super) unread: Vec<(String, CardError)>,
}

impl Catalogue {
    /// Reads it: complete cards.
    pub(super) fn read(text: &str) -> Result<Catalogue, CardError> {
        let File { capability, chip, card, mig } =
            toml::from_str(text).map_err(|it| toml_error(text, &it))?;
        let mut res = Catalogue { limits: capability, chips: chip, ..Catalogue::default() };
        res.cards = card.into_iter().map(|it| res.card(it, None)).collect::<Result<_, _>>()?;
        for Slice { cards, profile, total, sm_count } in mig {
            let total = size("total", &total)?;
            for card in cards {
                let card = names::find((&res.cards, &[]), &card)?;
                res.slices.push(parts::slice(card, &profile, total, sm_count));
            }
        }
        Ok(res)
    }

    /// Puts the user's own cards in the place of those of the same id or driver's name and memory, or behind all others.
    pub(super) fn take_in(&mut self, own: &Own) {
        let read = |(file, text): &(String, String)| {
            self.parse(text).map_err(|error| (file.clone(), error))
        };
        let read: Vec<_> = own.files.iter().map(read).collect();
        self.cards.retain(|it| !own.forgotten.contains(&it.id));
        for card in read {
            match card {
                Ok(card) => self.put(card),
                Err(error) => self.unread.push(error),
            }
        }
    }

    fn put(&mut self, mut card: Card) {
        let is_it = |it: &Card| it.id == card.id || (it.name == card.name && it.is_as_large(&card));
        match self.cards.iter().position(is_it) {
            Some(at) => {
                let known = &self.cards[at];
                card.usual = known.usual;
                card.id.clone_from(&known.id);
                card.aliases.clone_from(&known.aliases);
                card.generation.clone_from(&known.generation);
                self.cards[at] = card;
            }
            None => self.cards.push(card),
        }
    }

    /// Reads a card that a user describes. With `like` it starts from one that is here; without, it has to say everything
    /// that does not follow.
    pub(super) fn parse(&self, text: &str) -> Result<Card, CardError> {
        refuse_unknown_keys(text)?;
        let text: CardText = toml::from_str(text).map_err(|it| toml_error(text, &it))?;
        let base = match &text.like {
            Some(like) => Some(self.find(like)?),
            None => None,
        };
        self.card(text, base)
    }

    /// The card or the slice of this name.
    pub(super) fn find(&self, given: &str) -> Result<&Card, CardError> {
        names::find((&self.cards, &self.slices), given)
    }

    /// The card, the slice or the part of a card of this name.
    pub(super) fn resolve(&self, given: &str) -> Result<Card, CardError> {
        self.find(given).cloned().or_else(|error| {
            let ends = ['/', '-', ' '].into_iter().filter_map(|it| given.rsplit_once(it));
            let part = |(card, part): (&str, &str)| parts::part(self.find(card).ok()?, part);
            ends.into_iter().find_map(part).ok_or(error)
        })
    }

    fn chip(&self, name: &str) -> Result<&Chip, CardError> {
        self.chips.iter().find(|it| it.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let known = self.chips.iter().map(|it| it.name.clone()).collect();
            CardError::NoSuchChip { given: name.to_owned(), known }
        })
    }

    fn card(&self, text: CardText, base: Option<&Card>) -> Result<Card, CardError> {
        let or = |key: &'static str| move || CardError::Missing { key };
        let sized = |key: &'static str, it: &Option<SizeText>, otherwise: Option<Bytes>| match it {
            Some(it) => size(key, it),
            None => otherwise.ok_or_else(or(key)),
        };
        let number = |key: &'static str, it: Option<u32>, base: Option<u32>| match it.or(base) {
            Some(0) => {
                Err(CardError::Value { key, why: "found 0; expected at least 1".to_owned() })
            }
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
        if let Some(found) = text.format.filter(|it| NEWEST < *it) {
            let why = format!("found {found}; this plimsoll reads up to {NEWEST}: use a newer one");
            return Err(CardError::Value { key: "format", why });
        }
        let chip = text.chip.as_deref().map(|it| self.chip(it)).transpose()?;
        let compute_capability = match (&text.compute_capability, chip) {
            (Some(text), _) => capability(text)?,
            (None, Some(chip)) => capability(&chip.compute_capability)?,
            (None, None) => {
                base.map(|it| it.compute_capability).ok_or_else(or("compute_capability"))?
            }
        };
        let base_name = base.map(|it| it.name.clone());
        let name = text.name.clone().or(base_name).ok_or_else(or("name"))?;
        let is_as_base = base.is_some_and(|it| it.compute_capability == compute_capability);
        let like = base.filter(|_| is_as_base);
        let follows = || {
            let is_it = |it: &&Limits| capability(&it.compute_capability) == Ok(compute_capability);
            self.limits.iter().find(is_it)
        };
        let sm_count = number("sm_count", text.sm_count, base.map(|it| it.sm_count))?;
        let max_threads_per_sm = number(
            "max_threads_per_sm",
            text.max_threads_per_sm,
            like.map(|it| it.max_threads_per_sm).or(follows().map(|it| it.max_threads_per_sm)),
        )?;
        let chip_sms = chip.map(|it| it.sm_count).or_else(|| {
            let base = base.filter(|it| sm_count <= it.chip_sms).map(|it| it.chip_sms);
            base.filter(|_| text.compute_capability.is_none())
        });
        let chip_sms = chip_sms.unwrap_or_else(|| derived::chip_sms(sm_count)).max(sm_count);
        let generation = chip.map(|it| it.generation.clone());
        let generation = generation.or_else(|| base.map(|it| it.generation.clone()));
        let clusters = text.clusters.or_else(|| chip.and_then(|it| it.clusters));
        let gpcs = match (text.gpcs, clusters) {
            (Some(gpcs), _) => gpcs,
            (None, Some(clusters)) => derived::gpcs(sm_count, clusters),
            (None, None) => base.map(|it| it.gpcs.clone()).unwrap_or_default(),
        };
        if 24 < gpcs.len() {
            let why = format!("found {} of them; expected at most 24", gpcs.len());
            return Err(CardError::Value { key: "gpcs", why });
        }
        let mhz = |key, it: Option<u32>, base: Option<u32>| {
            number(key, it.map(|it| it.saturating_mul(1000)), base)
        };
        let derived = derived::context(compute_capability, chip_sms, max_threads_per_sm);
        let of_base = base.map(|it| (it.context, it.context_range));
        let (context, context_range) = match &text.context {
            None => of_base.unwrap_or(derived),
            Some(it) if text.context_known.as_deref() == Some("derived") => {
                (size("context", it)?, derived.1)
            }
            Some(it) => (size("context", it)?, Bytes(0)),
        };
        let context_known = match (&text.context, &text.context_known) {
            // Who writes a size has seen it.
            (Some(_), None) => Knowledge::Reported,
            (_, it) => known("context_known", it, base.map(|it| it.provenance.context))?,
        };
        let total = sized("total", &text.total, base.map(|it| it.total))?;
        if total <= context {
            let why =
                format!("found {total}; expected more than the CUDA context, which is {context}");
            return Err(CardError::Value { key: "total", why });
        }
        refuse_what_no_card_has(&name, total, sm_count, &gpcs)?;
        refuse_what_nobody_sees("id", text.id.as_deref())?;
        refuse_what_nobody_sees("name", Some(&name))?;
        refuse_what_nobody_sees("source", text.source.as_deref())?;
        for it in &text.aliases {
            refuse_what_nobody_sees("aliases", Some(it))?;
        }
        let nccl = text.nccl.as_ref().map(NcclText::read).or_else(|| base?.nccl);
        if let Some(it) = nccl.filter(|it| it.sizes().into_iter().any(|it| total < it)) {
            let most = it.sizes().into_iter().max().unwrap_or_default();
            let why = format!("found {most}; expected less than the card has, which is {total}");
            return Err(CardError::Value { key: "nccl", why });
        }
        let speeds = base.map(|it| it.speeds).unwrap_or_default();
        let speed = |key, it: &Option<SizeText>, base: Option<Bytes>| match it {
            Some(it) => match size(key, it)? {
                Bytes::ZERO => {
                    Err(CardError::Value { key, why: "found 0; expected more".to_owned() })
                }
                it => Ok(Some(it)),
            },
            None => Ok(base),
        };
        let speeds = Speeds {
            link: speed("link_per_second", &text.link_per_second, speeds.link)?,
            between: speed("between_per_second", &text.between_per_second, speeds.between)?,
            host_step_us: text.host_step_us.filter(|it| *it != 0).or(speeds.host_step_us),
        };
        let blas = base.map_or_else(|| derived::blas(compute_capability), |it| it.blas);
        let dnn = base.map_or_else(derived::dnn, |it| it.dnn);
        Ok(Card {
            id: text.id.unwrap_or_else(|| names::normal(&name)),
            aliases: text.aliases,
            usual: text.usual,
            name,
            generation: generation.unwrap_or_default(),
            compute_capability,
            total,
            context,
            context_range,
            blas: sized("blas", &text.blas, Some(blas))?,
            dnn: sized("dnn", &text.dnn, Some(dnn))?,
            sm_count,
            chip_sms,
            gpcs,
            max_threads_per_sm,
            max_blocks_per_sm: number(
                "max_blocks_per_sm",
                text.max_blocks_per_sm,
                like.map(|it| it.max_blocks_per_sm).or(follows().map(|it| it.max_blocks_per_sm)),
            )?,
            shared_per_block_optin: sized(
                "shared_per_block_optin",
                &text.shared_per_block_optin,
                like.map(|it| it.shared_per_block_optin)
                    .or(follows().map(|it| Bytes(it.shared_per_block_optin))),
            )?,
            shared_per_sm: sized(
                "shared_per_sm",
                &text.shared_per_sm,
                like.map(|it| it.shared_per_sm).or(follows().map(|it| Bytes(it.shared_per_sm))),
            )?,
            registers_per_sm: number(
                "registers_per_sm",
                text.registers_per_sm.or(Some(65_536)),
                base.map(|it| it.registers_per_sm),
            )?,
            l2: sized("l2", &text.l2, base.map(|it| it.l2))?,
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
            kept: sized("kept", &text.kept, Some(base.map_or(Bytes::ZERO, |it| it.kept)))?,
            hidden: sized("hidden", &text.hidden, Some(base.map_or(Bytes::ZERO, |it| it.hidden)))?,
            beside: Bytes::ZERO,
            lent: Bytes::ZERO,
            nccl,
            speeds,
            provenance: Provenance {
                total: known("total_known", &text.total_known, base.map(|it| it.provenance.total))?,
                context: context_known,
                cudnn: known("cudnn_known", &text.cudnn_known, base.map(|it| it.provenance.cudnn))?,
                note: text
                    .source
                    .or_else(|| base.map(|it| it.provenance.note.clone()))
                    .unwrap_or_default(),
            },
        })
    }
}

/// Files come from strangers, and what they say goes into what a phantom is told.
fn refuse_what_no_card_has(
    name: &str,
    total: Bytes,
    sm_count: u32,
    gpcs: &[u32],
) -> Result<(), CardError> {
    let refused = |key, why: &str| Err(CardError::Value { key, why: why.to_owned() });
    if 100 < name.chars().count() {
        return refused("name", "expected one line of at most 100 letters");
    }
    if Bytes::gib(4096) < total {
        return refused("total", &format!("found {total}; expected at most 4096 GiB"));
    }
    if 1024 < sm_count {
        return refused("sm_count", &format!("found {sm_count}; expected at most 1024"));
    }
    if gpcs.iter().any(|it| *it == 0 || 64 < *it) {
        return refused("gpcs", "expected numbers from 1 to 64");
    }
    Ok(())
}

/// Every report has a card's names.
fn refuse_what_nobody_sees(key: &'static str, text: Option<&str>) -> Result<(), CardError> {
    match text.filter(|it| !it.chars().all(is_printable)) {
        Some(text) => {
            let why = format!("found {text:?}; expected characters that can be seen");
            Err(CardError::Value { key, why })
        }
        None => Ok(()),
    }
}

fn size(key: &'static str, it: &SizeText) -> Result<Bytes, CardError> {
    match it {
        SizeText::Bytes(bytes) => Ok(Bytes(*bytes)),
        SizeText::Text(text) => match text.parse::<Bytes>() {
            // Texts such as `23.52GiB` are rounded; drivers give whole MiB, so never more than that.
            Ok(size) if Bytes::mib(1) <= size && !text.ends_with("KiB") => {
                Ok(Bytes(size.0 & !(Bytes::mib(1).0 - 1)))
            }
            Ok(size) => Ok(size),
            Err(error) => Err(CardError::Value { key, why: error.to_string() }),
        },
    }
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
    let table: toml::Table = text.parse().map_err(|it| toml_error(text, &it))?;
    let Some(key) = table.keys().find(|it| !KEYS.contains(&it.as_str())) else { return Ok(()) };
    let stands_here = |line: &str| {
        line.trim_start().trim_start_matches(['"', '\'', '[']).starts_with(key.as_str())
    };
    let line = 1 + text.lines().position(stands_here).unwrap_or(0);
    let near = spelling::nearest(key, 3, KEYS, names::normal);
    Err(CardError::UnknownKey { key: key.clone(), near, line })
}

/// What is wrong with `text`, in one sentence.
fn toml_error(text: &str, error: &toml::de::Error) -> CardError {
    let before = error.span().and_then(|it| text.get(..it.start)).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    CardError::Toml(format!("line {line}: {}", error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::parse;

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
        assert!(error("name = ").starts_with("not a card file: line 1: "));
        assert_eq!(
            error("like = \"h200\"\n\nsmcount = 3\n"),
            "line 3: a card has no key \"smcount\"; did you mean `sm_count`?"
        );
        assert_eq!(
            error("name = \"x\"\ncompute_capability = \"9.0\"\n"),
            "the card lacks `sm_count`; give it, or start from a card of the catalogue with `like = \"rtx4090\"`"
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
        assert!(error("like = \"h2000\"\n").contains("`h200`"));
    }
}
