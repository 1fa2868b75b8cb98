//! What is held at one moment as a flame graph: the width of a frame is the bytes that it and what it
//! called hold. Outermost frames first, so `main` is at the top.
//!
//! The SVG is one file that needs nothing: it shows everything without its script, which only zooms and
//! searches. Every text of a recording is escaped; none of it is ever part of the script.

mod tree;

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    explanation::{
        At, NoSuchDevice, NoSuchMoment,
        held::{Held, Holdings, Names, device},
    },
    prediction::device_run::DeviceRun,
    printable::{self, is_printable},
    recording::{Phase, Recording, is_users_code},
    trace::{FrameId, StackId},
    units::Bytes,
};

use tree::{Key, Kind, Node, Tree, share};

/// A flame graph, and what to know about it.
#[derive(Clone, Debug)]
pub struct Flamegraph {
    /// The file.
    pub svg: String,
    /// What all its frames together hold.
    pub bytes: Bytes,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// Why there is no flame graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFlamegraph {
    /// No such device.
    #[error(transparent)]
    Device(#[from] NoSuchDevice),
    /// No such moment.
    #[error(transparent)]
    Moment(#[from] NoSuchMoment),
    /// Nothing is there to show.
    #[error("nothing is allocated {at} on device {device}")]
    Nothing {
        /// The moment.
        at: At,
        /// The device.
        device: usize,
    },
}

/// What `recording` holds at the moment `at`, on `asked` or the device with the highest peak.
pub fn flamegraph(
    recording: &Recording,
    asked: Option<usize>,
    at: At,
    name: &str,
) -> Result<Flamegraph, NoFlamegraph> {
    let (run, n_devices) = device(recording, asked)?;
    let evidence = run.evidence();
    let holdings = Holdings::of(&run, &evidence, at)?;
    let names = Names::new(&run, &evidence);
    let mut notes = Vec::new();
    if asked.is_none() && 1 < n_devices {
        notes.push(format!(
            "this shows device {}, which has the highest peak of {n_devices}; --device N shows another",
            run.index
        ));
    }
    let mut tree = Tree::default();
    // Many blocks come from few stacks, which may be deep.
    let mut groups: Vec<(&Held, Bytes, u64)> = Vec::new();
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for held in &holdings.held {
        let stack = names.stack_of(held);
        let of_no_stack = (stack == StackId::EMPTY).then_some(held.size);
        let key = (stack, held.stack == StackId::EMPTY, Names::category(held), of_no_stack);
        let at = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, bytes, blocks)) => (*bytes, *blocks) = (*bytes + held.size, *blocks + 1),
            None => groups.push((held, held.size, 1)),
        }
    }
    for (held, bytes, blocks) in groups {
        tree.begin(bytes, blocks);
        add(&mut tree, &run, &names, held);
    }
    if holdings.rest != 0 {
        notes.push(format!(
            "the recording counts {} bytes without a block; the graph does not show them",
            holdings.rest
        ));
    }
    if !run.stacks.recorded {
        notes.push("the recording has no call stacks, so blocks are grouped by category and size; record with context=\"all\"".to_owned());
    }
    let bytes = tree.root().bytes;
    if bytes == Bytes::ZERO {
        return Err(NoFlamegraph::Nothing { at, device: run.index });
    }
    let title = format!("{bytes} allocated {at}{}", moment(&run, holdings.found.done));
    let subtitle = format!("{name}, device {}", run.index);
    let (svg, hidden) = draw(&mut tree, &title, &subtitle);
    if hidden != 0 {
        notes.push(format!("{hidden} frames are too narrow to draw"));
    }
    Ok(Flamegraph { svg, bytes, notes })
}

/// Goes through the frames of `held`, from the outermost to what it is for.
fn add(tree: &mut Tree, run: &DeviceRun<'_>, names: &Names<'_>, held: &Held) {
    let stack = names.stack_of(held);
    let mut frames: Vec<FrameId> = run.trace.stacks.frame_ids(stack).collect();
    frames.reverse();
    for id in frames {
        tree.enter(Key::Frame(id), || frame(run, id));
    }
    if stack == StackId::EMPTY {
        let node = || Node::of("no stack".to_owned(), Kind::NoStack);
        tree.enter(Key::Word("no stack"), node);
    } else if held.stack == StackId::EMPTY {
        let node = || Node::of("backward pass (autograd)".to_owned(), Kind::NoStack);
        tree.enter(Key::Word("backward"), node);
    }
    let category = Names::category(held);
    tree.enter(Key::Word(category), || Node::of(category.to_owned(), Kind::Category));
    if stack == StackId::EMPTY {
        let node = || Node::of(format!("blocks of {}", held.size), Kind::Size);
        tree.enter(Key::Size(held.size), node);
    }
}

fn frame(run: &DeviceRun<'_>, id: FrameId) -> Node {
    let frame = run.trace.stacks.frame_of(id);
    let file = run.trace.text(frame.file);
    let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
    let function = run.trace.text(frame.function);
    let kind = match frame.line {
        _ if is_users_code(file, frame.line) => Kind::Users,
        0 => Kind::Cpp,
        _ if file.contains("/torch/") => Kind::Torch,
        _ => Kind::Library,
    };
    let label = match frame.line {
        0 => function.to_owned(),
        line => format!("{function} ({name}:{line})"),
    };
    Node { detail: format!("{file}:{}", frame.line), ..Node::of(label, kind) }
}

fn moment(run: &DeviceRun<'_>, done: u32) -> String {
    let Some(last) = done.checked_sub(1) else { return String::new() };
    let moment = run.moment(crate::trace::EventId(last));
    let phase = match moment.phase {
        Some(Phase::Forward) => ", forward",
        Some(Phase::Backward) => ", backward",
        Some(Phase::Optimizer) => ", optimizer",
        Some(Phase::ZeroGrad) => ", zero_grad",
        Some(Phase::Evaluation) => ", evaluation",
        Some(Phase::Saving) => ", saving",
        Some(Phase::Merging) => ", merging",
        None => "",
    };
    let step = if moment.step == 0 { String::new() } else { format!(", step {}", moment.step) };
    format!(" (event {last}{step}{phase})")
}

/// The picture's width; browsers scale it to theirs.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 18.0;
/// Above the first row: title, subtitle, search.
const HEAD: f64 = 58.0;
/// Frames narrower than this are left out.
const NARROWEST: f64 = 0.1;
/// About what a letter takes at 12 px.
const LETTER: f64 = 7.0;

/// The picture, and how many frames were too narrow for it.
fn draw(tree: &mut Tree, title: &str, subtitle: &str) -> (String, u64) {
    tree.root_mut().label = title.to_owned();
    let mut rows = String::new();
    let mut depth = 0;
    let scale = (WIDTH - 2.0 * MARGIN) / share(tree.root().bytes);
    let hidden = tree.walk(NARROWEST / scale, |node, level, before| {
        depth = depth.max(level);
        let x = MARGIN + share(before) * scale;
        let width = share(node.bytes) * scale;
        let y = HEAD + f64::from(level) * ROW;
        rect(&mut rows, node, tree.root().bytes, (x, y, width));
    });
    let height = HEAD + f64::from(depth + 1) * ROW + 34.0;
    let mut svg = String::with_capacity(rows.len() + 8192);
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"100%\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"12\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{MARGIN}\" y=\"40\" fill=\"#555\">{}; width is bytes, outermost frame first</text>\n\
         <text id=\"reset\" x=\"{:.0}\" y=\"22\" text-anchor=\"end\" fill=\"#06c\" cursor=\"pointer\" visibility=\"hidden\">show all</text>\n\
         <text id=\"search\" x=\"{:.0}\" y=\"40\" text-anchor=\"end\" fill=\"#06c\" cursor=\"pointer\" visibility=\"hidden\">search</text>\n\
         <g id=\"frames\">\n",
        escape(title),
        escape(title),
        escape(subtitle),
        WIDTH - MARGIN,
        WIDTH - MARGIN,
    );
    svg.push_str(&rows);
    svg.push_str("</g>\n");
    let mut x = MARGIN;
    for (kind, text) in Kind::LEGEND {
        let y = height - 16.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.0}\" y=\"{y:.0}\" fill=\"#555\">{text}</text>",
            y - 10.0,
            kind.color(),
            x + 14.0,
        );
        x += 34.0 + LETTER * f64::from(u32::try_from(text.len()).unwrap_or(0));
    }
    svg.push_str("<script><![CDATA[\n");
    svg.push_str(include_str!("zoom.js"));
    svg.push_str("]]></script>\n</svg>\n");
    (svg, hidden)
}

fn rect(out: &mut String, node: &Node, whole: Bytes, (x, y, width): (f64, f64, f64)) {
    let percent = node.bytes.share_of(whole) * 100.0;
    let blocks = if node.blocks == 1 { "1 block" } else { &format!("{} blocks", node.blocks) };
    let detail = if node.detail.is_empty() { String::new() } else { format!("\n{}", node.detail) };
    let title = format!("{}\n{} ({percent:.1} %), {blocks}{detail}", node.label, node.bytes);
    let _ = write!(
        out,
        "<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y:.0}\" width=\"{width:.2}\" height=\"{:.0}\" rx=\"2\" fill=\"{}\"/>",
        escape(&title),
        ROW - 1.0,
        node.kind.color(),
    );
    let _ = writeln!(
        out,
        "<text x=\"{:.2}\" y=\"{:.0}\">{}</text></g>",
        x + 3.0,
        y + 13.0,
        escape(&fitting(&node.label, width)),
    );
}

/// As much of `label` as `width` has room for.
fn fitting(label: &str, width: f64) -> String {
    let room = (width - 6.0) / LETTER;
    let mut res = String::new();
    for (n, letter) in (0_u32..).zip(label.chars()) {
        if room < f64::from(n) + 1.0 {
            let keeps = res.char_indices().rev().nth(1).map_or(0, |(at, _)| at);
            res.truncate(keeps);
            if !res.is_empty() {
                res.push_str("..");
            }
            break;
        }
        res.push(letter);
    }
    res
}

/// `text` as text of an XML file. What XML has no letters for is written out, as everything that nobody would see.
fn escape(text: &str) -> String {
    let mut res = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => res.push_str("&amp;"),
            '<' => res.push_str("&lt;"),
            '>' => res.push_str("&gt;"),
            '"' => res.push_str("&quot;"),
            '\'' => res.push_str("&#39;"),
            '\n' => res.push(letter),
            it if is_printable(it) => res.push(it),
            it => printable::escape(it, &mut res),
        }
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_a_recording_is_markup() {
        assert_eq!(
            escape("<script>alert('&')</script>\u{7}\"]]>"),
            "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;\\x07&quot;]]&gt;"
        );
    }

    #[test]
    fn a_label_is_cut_to_its_frame() {
        assert_eq!(fitting("forward (model.py:3)", 1000.0), "forward (model.py:3)");
        assert_eq!(fitting("forward (model.py:3)", 62.0), "forwar..");
        assert_eq!(fitting("forward", 8.0), "");
        assert_eq!(fitting("é", 20.0), "é");
    }
}
