//! `plimsoll cards`: the cards that can be imitated, and where their numbers come from.

use std::io::Write;

use plimsoll_core::{
    cards::{self, Card, Knowledge},
    units::Bytes,
};
use serde_json::json;

use crate::{cli::CardsArgs, exit::Exit};

pub(crate) fn run(args: &CardsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let text = match (&args.name, args.json) {
        (None, false) => table(cards::catalogue()),
        (None, true) => {
            let cards: Vec<_> = cards::catalogue().iter().map(wire).collect();
            format!("{:#}\n", json!({ "version": 1, "cards": cards }))
        }
        (Some(name), false) => page(cards::find(name)?),
        (Some(name), true) => format!("{:#}\n", wire(cards::find(name)?)),
    };
    super::write(out, &text)?;
    Ok(Exit::Fits)
}

fn table(cards: &[Card]) -> String {
    let id_width = cards.iter().map(|it| it.id.len()).max().unwrap_or(0).max("NAME".len());
    let name_width = cards.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let mut res = format!(
        "{:id_width$}  {:name_width$}  {:>10}  {:>10}  {:>4}  {:>4}\n",
        "NAME", "CARD", "MEMORY", "CONTEXT", "CC", "SMS"
    );
    for it in cards {
        let (major, minor) = it.compute_capability;
        let cc = format!("{major}.{minor}");
        res += &format!(
            "{:id_width$}  {:name_width$}  {:>10}  {:>10}  {cc:>4}  {:>4}\n",
            it.id, it.name, it.total, it.context, it.sm_count
        );
    }
    res += "\nMEMORY is what the driver lets programs use; CONTEXT is what the first use takes of it.\n\
            `plimsoll cards NAME` says where the numbers of one card are from. A card that is not\n\
            here: describe it in a file and give that to --gpu (docs/cards.md).\n";
    res
}

fn page(card: &Card) -> String {
    let Card { id, aliases, name, compute_capability: (major, minor), total, context, .. } = card;
    let provenance = &card.provenance;
    let mut rows: Vec<(&str, String)> = vec![("name", id.clone())];
    if !aliases.is_empty() {
        rows.push(("also", aliases.join(", ")));
    }
    let exact = |it: Bytes, known: Knowledge| format!("{it} ({it:#}; {})", word(known));
    rows.extend([
        ("memory", exact(*total, provenance.total)),
        ("context", exact(*context, provenance.context)),
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
    let known = |it: Knowledge| match it {
        Knowledge::Measured => "measured",
        Knowledge::Reported => "reported",
        Knowledge::Derived => "derived",
    };
    let (major, minor) = card.compute_capability;
    json!({
        "id": card.id,
        "aliases": card.aliases,
        "name": card.name,
        "compute_capability": format!("{major}.{minor}"),
        "total_bytes": card.total.0,
        "context_bytes": card.context.0,
        "sm_count": card.sm_count,
        "max_threads_per_sm": card.max_threads_per_sm,
        "max_blocks_per_sm": card.max_blocks_per_sm,
        "registers_per_sm": card.registers_per_sm,
        "shared_per_sm_bytes": card.shared_per_sm.0,
        "shared_per_block_optin_bytes": card.shared_per_block_optin.0,
        "l2_bytes": card.l2.0,
        "clock_khz": card.clock_khz,
        "memory_clock_khz": card.memory_clock_khz,
        "memory_bus_bits": card.memory_bus_bits,
        "provenance": {
            "total": known(card.provenance.total),
            "context": known(card.provenance.context),
            "cudnn": known(card.provenance.cudnn),
            "note": card.provenance.note,
        },
    })
}
