//! `plimsoll cards`: the cards that can be imitated, and where their numbers come from.

use plimsoll_core::{
    cards::{self, Card, Knowledge},
    units::Bytes,
};
use serde_json::json;

use crate::{exit::Exit, options::cli::CardsArgs, output::Output};

pub(crate) fn run(args: &CardsArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let all: Vec<&Card> = cards::catalogue().iter().collect();
    match &args.name {
        None if args.json => out.json(&list(&all))?,
        None => out.text(&(table(&all) + FOOT))?,
        Some(name) => match (cards::resolve(name), matching(name)) {
            (Err(_), some) if !some.is_empty() && args.json => out.json(&list(&some))?,
            (Err(_), some) if !some.is_empty() => out.text(&table(&some))?,
            (card, _) if args.json => out.json(&format!("{:#}\n", wire(&card?)))?,
            (card, _) => out.text(&page(&card?))?,
        },
    }
    Ok(Exit::Fits)
}

/// What stands below the table.
const FOOT: &str = "
MEMORY: what the driver gives to programs. CONTEXT: what a training process needs of it outside
PyTorch. `plimsoll cards NAME` shows where the numbers of one card are from, and its slices;
`plimsoll cards laptop` lists the cards with that word. A part of a card: `a100-80g/3g.40gb` (MIG),
`a40/12q` (a virtual GPU), `a100-80g/0.5` (a share of the memory). Another card: describe it
in a file and give that to --gpu (docs/cards.md).
";

/// The cards that have this word in a name or in their generation.
fn matching(word: &str) -> Vec<&'static Card> {
    let word = word.to_ascii_lowercase();
    let has = |card: &&Card| {
        [&card.id, &card.name, &card.generation]
            .iter()
            .any(|it| it.to_ascii_lowercase().contains(&word))
    };
    cards::catalogue().iter().filter(has).collect()
}

fn table(cards: &[&Card]) -> String {
    let id_width = cards.iter().map(|it| it.id.len()).max().unwrap_or(0).max("NAME".len());
    let name_width = cards.iter().map(|it| short(&it.name).chars().count()).max().unwrap_or(0);
    let mut res = format!(
        "{:id_width$}  {:name_width$}  {:>10}  {:>10}  {:>4}  {:>4}\n",
        "NAME", "CARD", "MEMORY", "CONTEXT", "CC", "SMS"
    );
    let mut generation = "";
    for it in cards {
        if it.generation != generation {
            generation = &it.generation;
            res += &format!("\n{generation}\n");
        }
        let (major, minor) = it.compute_capability;
        let cc = format!("{major}.{minor}");
        res += &format!(
            "{:id_width$}  {:name_width$}  {:>10}  {:>10}  {cc:>4}  {:>4}\n",
            it.id,
            short(&it.name),
            it.total,
            it.context,
            it.sm_count
        );
    }
    res
}

/// A driver's name, as far as there is room for it.
fn short(name: &str) -> String {
    const ROOM: usize = 40;
    let name = name.trim_start_matches("NVIDIA ");
    if name.chars().count() <= ROOM {
        return name.to_owned();
    }
    name.chars().take(ROOM - 1).chain(['…']).collect()
}

fn list(cards: &[&Card]) -> String {
    let cards: Vec<_> = cards.iter().map(|it| wire(it)).collect();
    format!("{:#}\n", json!({ "version": 1, "cards": cards }))
}

fn page(card: &Card) -> String {
    let Card { id, aliases, name, compute_capability: (major, minor), total, context, .. } = card;
    let provenance = &card.provenance;
    let mut rows: Vec<(&str, String)> = vec![("name", id.clone())];
    if !aliases.is_empty() {
        rows.push(("also", aliases.join(", ")));
    }
    if !card.generation.is_empty() {
        rows.push(("generation", card.generation.clone()));
    }
    let exact = |it: Bytes, known: Knowledge| format!("{it} ({it:#}; {})", word(known));
    let range = match card.context_range {
        Bytes::ZERO => String::new(),
        it => format!(", ± {it}"),
    };
    rows.extend([
        ("memory", exact(*total, provenance.total)),
        ("context", exact(*context, provenance.context) + &range),
        ("compute capability", format!("{major}.{minor}")),
        ("multiprocessors", card.sm_count.to_string()),
        ("threads each", card.max_threads_per_sm.to_string()),
        ("blocks each", card.max_blocks_per_sm.to_string()),
        ("registers each", card.registers_per_sm.to_string()),
        ("shared memory each", card.shared_per_sm.to_string()),
        ("per block", format!("{} (opt-in)", card.shared_per_block_optin)),
        ("L2 cache", card.l2.to_string()),
        ("memory bus", format!("{} bits", card.memory_bus_bits)),
        ("cuDNN's view", word(provenance.cudnn).to_owned()),
    ]);
    if let Some(it) = card.nccl {
        let first = it.library + it.tables + it.ring + it.ring_kernels;
        rows.push((
            "NCCL",
            format!("{first} with the first group of {} ranks (measured)", it.ranks),
        ));
    }
    let speeds = [("link to the host", card.speeds.link), ("between GPUs", card.speeds.between)];
    for (what, it) in speeds {
        rows.extend(it.map(|it| (what, format!("{it} a second (measured)"))));
    }
    let start = format!("{id}/");
    let slices = cards::slices().iter().filter(|it| it.id.starts_with(&start));
    let slices: Vec<String> = slices.map(|it| format!("{} ({})", it.id, it.total)).collect();
    if !slices.is_empty() {
        rows.push(("slices", slices.join(", ")));
    }
    let width = rows.iter().map(|(it, _)| it.len()).max().unwrap_or(0);
    let mut res = format!("{name}\n\n");
    for (what, value) in rows {
        res += &format!("  {what:width$}  {value}\n");
    }
    res += &format!("\n{}\n", provenance.note.trim_end());
    res
}

fn word(knowledge: Knowledge) -> &'static str {
    match knowledge {
        Knowledge::Measured => "measured",
        Knowledge::Reported => "as its driver reports it",
        Knowledge::Derived => "derived",
    }
}

fn wire(card: &Card) -> serde_json::Value {
    let known = |known_by: Knowledge| match known_by {
        Knowledge::Measured => "measured",
        Knowledge::Reported => "reported",
        Knowledge::Derived => "derived",
    };
    let (major, minor) = card.compute_capability;
    json!({
        "id": card.id,
        "aliases": card.aliases,
        "name": card.name,
        "generation": card.generation,
        "compute_capability": format!("{major}.{minor}"),
        "total_bytes": card.total.0,
        "context_bytes": card.context.0,
        "context_range_bytes": card.context_range.0,
        "blas_bytes": card.blas.0,
        "dnn_bytes": card.dnn.0,
        "sm_count": card.sm_count,
        "gpcs": card.gpcs,
        "max_threads_per_sm": card.max_threads_per_sm,
        "max_blocks_per_sm": card.max_blocks_per_sm,
        "registers_per_sm": card.registers_per_sm,
        "shared_per_sm_bytes": card.shared_per_sm.0,
        "shared_per_block_optin_bytes": card.shared_per_block_optin.0,
        "l2_bytes": card.l2.0,
        "clock_khz": card.clock_khz,
        "memory_clock_khz": card.memory_clock_khz,
        "memory_bus_bits": card.memory_bus_bits,
        "link_bytes_per_second": card.speeds.link.map(|it| it.0),
        "between_bytes_per_second": card.speeds.between.map(|it| it.0),
        "host_step_us": card.speeds.host_step_us,
        "nccl_bytes": card.nccl.map(|it| it.sizes().map(|it| it.0)),
        "provenance": {
            "total": known(card.provenance.total),
            "context": known(card.provenance.context),
            "cudnn": known(card.provenance.cudnn),
            "note": card.provenance.note,
        },
    })
}
