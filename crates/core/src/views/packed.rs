//! A scene as one run of bytes, for a page that has no server: every number a varint, what repeats as an
//! index, what rises as a difference. The page's `store.js` reads it.
//!
//! The header is JSON, with its length before it; then the columns follow in the order that it names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    scene::{Columns, Position, Scene},
    views::{explain_wire::phase, page},
};

/// Everything of `scene`.
pub fn scene(scene: &Scene<'_>) -> Vec<u8> {
    let it = scene.columns();
    let mut body = Body::default();
    let mut sizes = Table::default();
    let mut addresses = Table::default();
    body.rising("starts", it.starts.iter().map(|it| u64::from(*it)));
    let lasted = it.starts.iter().zip(&it.ends).map(|(start, end)| match *end {
        Position::MAX => 0,
        end => u64::from(end.saturating_sub(*start)) + 1,
    });
    body.plain("lasted", lasted);
    let of = |table: &mut Table, all: &[u64]| -> Vec<u64> {
        all.iter().map(|it| table.index(*it)).collect()
    };
    let columns = [
        ("sizes", of(&mut sizes, &it.sizes)),
        ("requested", of(&mut sizes, &it.requested)),
        ("addresses", of(&mut addresses, &it.addresses)),
        ("amounts", of(&mut sizes, &it.amounts)),
    ];
    for (name, column) in columns {
        body.plain(name, column);
    }
    for (name, column) in ["category", "line", "pool"].into_iter().zip(&it.groups) {
        body.plain(name, column.iter().map(|it| u64::from(*it)));
    }
    let wide = [
        ("owner", &it.owner_of),
        ("stack", &it.stacks),
        ("told", &it.told_stacks),
        ("event_stack", &it.event_stacks),
        ("step", &it.steps),
    ];
    for (name, column) in wide {
        body.plain(name, column.iter().map(|it| u64::from(*it)));
    }
    for (name, column) in
        ["name", "module", "metadata", "pool_name", "stream"].iter().zip(&it.words)
    {
        body.plain(name, column.iter().map(|it| u64::from(*it)));
    }
    body.plain("happened", it.happened.iter().map(|it| u64::from(*it)));
    body.rising("micros", it.micros.iter().copied());
    let odd = where_odd(&it);
    body.plain("odd_at", odd.iter().map(|it| it.0));
    body.plain("odd_allocated", odd.iter().map(|it| it.1));
    for (name, curve) in [("reserved", &it.reserved), ("holes", &it.holes)] {
        body.rising(&format!("{name}_at"), curve.iter().map(|it| u64::from(it.0)));
        body.plain(name, curve.iter().map(|it| sizes.index(it.1)).collect::<Vec<_>>());
    }
    body.plain("node_caller", it.nodes.iter().map(|it| u64::from(it.0)));
    body.plain("node_frame", it.nodes.iter().map(|it| u64::from(it.1)));
    body.plain("size_table", sizes.values);
    body.plain("address_table", addresses.values);
    let header = json!({
        "columns": body.names,
        "end": scene.end(),
        "texts": it.texts,
        "actions": it.actions,
        "frames": it.frames.iter().map(page::line).collect::<Vec<_>>(),
        "owners": it.owners.iter().map(|it| it.as_ref().map(page::line)).collect::<Vec<_>>(),
        "stages": it.stages.iter().map(|it| json!([it.0, it.1, it.2.map(phase)])).collect::<Vec<_>>(),
        "extents": it.extents.iter().map(extents).collect::<Vec<_>>(),
        "pending": it.pending,
        "held": it.held,
        "has_stacks": it.has_stacks,
    });
    let header = header.to_string().into_bytes();
    let mut res = Vec::with_capacity(header.len() + body.bytes.len() + 10);
    varint(&mut res, header.len() as u64);
    res.extend(header);
    res.extend(body.bytes);
    res
}

fn extents(it: &crate::scene::Extents) -> Value {
    json!([
        it.address,
        it.size.0,
        it.stream,
        it.pool.0,
        it.pool.1,
        u8::from(it.is_small),
        u8::from(it.expandable),
        it.from,
        it.to
    ])
}

/// Where the blocks do not add up to what was allocated: a recording may contradict itself.
fn where_odd(it: &Columns) -> Vec<(u64, u64)> {
    let mut changes = vec![0_i128; it.allocated.len() + 1];
    for ((start, end), size) in it.starts.iter().zip(&it.ends).zip(&it.sizes) {
        if start < end {
            changes[*start as usize] += i128::from(*size);
            changes[(*end as usize).min(it.allocated.len())] -= i128::from(*size);
        }
    }
    let mut sum = 0;
    let mut res = Vec::new();
    for (position, (change, allocated)) in (0..).zip(changes.iter().zip(&it.allocated)) {
        sum += change;
        if sum != i128::from(*allocated) {
            res.push((position, *allocated));
        }
    }
    res
}

#[derive(Default)]
struct Body {
    names: Vec<Value>,
    bytes: Vec<u8>,
}

impl Body {
    fn plain(&mut self, name: &str, column: impl IntoIterator<Item = u64>) {
        self.put(name, "plain", column);
    }

    fn rising(&mut self, name: &str, column: impl IntoIterator<Item = u64>) {
        let mut before = 0;
        let steps = column.into_iter().map(|value| {
            let step = value.saturating_sub(before);
            before = value;
            step
        });
        self.put(name, "rising", steps.collect::<Vec<_>>());
    }

    fn put(&mut self, name: &str, kind: &str, column: impl IntoIterator<Item = u64>) {
        let mut n = 0_u64;
        for it in column {
            varint(&mut self.bytes, it);
            n += 1;
        }
        self.names.push(json!([name, kind, n]));
    }
}

/// Values by first appearance.
#[derive(Default)]
struct Table {
    known: BTreeMap<u64, u64>,
    values: Vec<u64>,
}

impl Table {
    fn index(&mut self, value: u64) -> u64 {
        let next = self.values.len() as u64;
        let at = *self.known.entry(value).or_insert(next);
        if at == next {
            self.values.push(value);
        }
        at
    }
}

fn varint(bytes: &mut Vec<u8>, mut it: u64) {
    loop {
        let low = it.to_le_bytes()[0] & 0x7f;
        it >>= 7;
        if it == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_written() {
        let mut bytes = Vec::new();
        [0, 127, 128, 300, u64::MAX].into_iter().for_each(|it| varint(&mut bytes, it));
        assert_eq!(&bytes[..6], [0, 127, 128, 1, 172, 2]);
        assert_eq!(bytes.len(), 16);
    }
}
