//! What the driver takes for graphs that can be launched. An H200 (580) took it in chunks of 2 MiB, of four kinds, for 1 to 375 graphs of 1 to
//! 2000 nodes with 0 to 32,000 bytes of parameters (`bench/instruments/driver_nodes.py`); an H100 and PyTorch's and vLLM's graphs agree. A
//! graph and its copy that can be launched share nothing: the graph alone takes none. Nothing is given back, but others get it.

use crate::addresses::GRANULE;

const KIB: u64 = 1 << 10;

/// For each line of work of a graph, and what the first ones have room in already.
const LINE: u64 = 64 * KIB;
const LINES_WITHIN: u64 = 8 * LINE;
/// Likewise, in the chunks that streams take it from, which a context has used for some.
const LINE_OR_STREAM: u64 = 48 * KIB;
const STREAMS_OF_A_CONTEXT: u64 = 7;
/// For each kernel, and one more a graph.
const ENTRY: u64 = 512;
/// Kernels get their parameters' place in blocks of so many.
const BLOCK: u64 = 32;
/// What a context has used of the first chunk of those.
const USED: u64 = 72 * KIB;

/// How much place a kernel's parameters get: the most bytes of them, and those of the place. Between 1,024 and 1,280 bytes, between 2,048 and
/// 2,560, and between 6,000 and 8,192 is where more was taken.
const PLACES: [(u32, u64); 4] = [(1264, 1792), (2288, 2816), (7664, 8192), (u32::MAX, 33_280)];

/// A piece of captured work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A kernel with so many bytes of parameters.
    Kernel(u32),
    /// A copy from or to the host, or a small area that is set: nothing is taken for it.
    Plain,
}

impl Node {
    /// A copy within the device is a kernel with few parameters.
    pub const COPY: Node = Node::Kernel(0);
}

/// What is in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Kernels, by how much place each needs.
    kernels: [u64; PLACES.len()],
    plain: u64,
    /// Lines of work beside each other: streams that were captured together.
    pub lines: u64,
}

impl Content {
    /// Nothing yet, on one stream.
    pub const NEW: Content = Content { kernels: [0; PLACES.len()], plain: 0, lines: 1 };

    /// One more.
    pub fn add(&mut self, node: Node) {
        match node {
            Node::Plain => self.plain += 1,
            Node::Kernel(bytes) => {
                let place = PLACES.iter().position(|it| bytes <= it.0).unwrap_or(0);
                self.kernels[place] += 1;
            }
        }
    }

    fn kernels(&self) -> u64 {
        self.kernels.iter().sum()
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> u64 {
        self.kernels() + self.plain
    }

    fn entries(&self) -> u64 {
        if self.kernels() == 0 { 0 } else { self.kernels() + 1 }
    }
}

/// A number that goes up and down, and the most that it was.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    now: u64,
    most: u64,
}

impl Level {
    fn rise(&mut self, by: u64) {
        self.now += by;
        self.most = self.most.max(self.now);
    }

    fn fall(&mut self, by: u64) {
        self.now = self.now.saturating_sub(by);
    }
}

/// The graphs of one device.
#[derive(Clone, Debug, Default)]
pub struct Graphs {
    lines: Level,
    entries: Level,
    /// Places that no kernel has, of each size.
    spare: [u64; PLACES.len()],
    chunks: Chunks,
}

impl Graphs {
    /// One is made ready to be launched.
    pub fn add(&mut self, graph: Content) {
        self.lines.rise(graph.lines);
        self.entries.rise(graph.entries());
        for (index, (_, size)) in PLACES.iter().enumerate() {
            let wanted = graph.kernels[index];
            let blocks = wanted.saturating_sub(self.spare[index]).div_ceil(BLOCK);
            if blocks != 0 {
                self.chunks.take(blocks * BLOCK * size);
            }
            self.spare[index] += blocks * BLOCK;
            self.spare[index] -= wanted;
        }
    }

    /// One cannot be launched any more.
    pub fn remove(&mut self, graph: Content) {
        self.lines.fall(graph.lines);
        self.entries.fall(graph.entries());
        for (spare, kernels) in self.spare.iter_mut().zip(graph.kernels) {
            *spare += kernels;
        }
    }

    /// What all of them take beside a context with so many `streams`, or took when there were most; and the streams' part of it.
    pub fn bytes(&self, streams: u64) -> u64 {
        let beyond =
            |bytes: u64, within: u64| bytes.saturating_sub(within).next_multiple_of(GRANULE);
        let shared = (STREAMS_OF_A_CONTEXT + streams + self.lines.most) * LINE_OR_STREAM;
        beyond(self.lines.most * LINE, LINES_WITHIN)
            + beyond(shared, GRANULE)
            + beyond(self.entries.most * ENTRY, GRANULE)
            + self.chunks.bytes
    }
}

/// Chunks of memory, each block in the first that has room for it.
#[derive(Clone, Debug)]
struct Chunks {
    rooms: Vec<u64>,
    /// What was taken beside the first.
    bytes: u64,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks { rooms: vec![GRANULE - USED], bytes: 0 }
    }
}

impl Chunks {
    fn take(&mut self, bytes: u64) {
        if let Some(room) = self.rooms.iter_mut().find(|it| bytes <= **it) {
            *room -= bytes;
            return;
        }
        let whole = bytes.next_multiple_of(GRANULE);
        self.bytes += whole;
        self.rooms.push(whole - bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Those of PyTorch's pool, once one of them is used.
    const STREAMS: u64 = 128;

    impl Graphs {
        fn beside_streams(&self) -> u64 {
            self.bytes(STREAMS) - Graphs::default().bytes(STREAMS)
        }
    }

    fn of(kernels: u64, parameters: u32) -> Content {
        let mut graph = Content::NEW;
        (0..kernels).for_each(|_| graph.add(Node::Kernel(parameters)));
        graph
    }

    /// After which graphs more is taken, of `count` alike; those of lines left out, which are `others`.
    fn steps(count: u64, graph: Content) -> Vec<u64> {
        let mut graphs = Graphs::default();
        let mut lines = Graphs::default();
        let mut found = Vec::new();
        let mut before = 0;
        for at in 1..=count {
            graphs.add(graph);
            lines.add(Content::NEW);
            let now = graphs.beside_streams() - lines.beside_streams();
            if now != before {
                found.push(at);
            }
            before = now;
        }
        found
    }

    #[test]
    fn kernels_take_what_they_took_on_a_card() {
        assert_eq!(steps(300, of(10, 8)), [113, 228]);
        assert_eq!(steps(300, of(16, 1024)), [71, 143, 215, 241, 287], "the fourth is of entries");
        assert_eq!(steps(144, of(40, 40)), [29, 57, 86, 100, 115, 144]);
        assert_eq!(steps(40, of(100, 8)), [12, 23, 34], "a large graph's blocks lie together");
        assert_eq!(steps(200, of(10, 2048)), [71, 145]);
        assert_eq!(steps(100, of(10, 4096)), [23, 49, 74, 100]);
        assert_eq!(steps(20, of(10, 32_000)), [4, 7, 10, 13, 17, 20]);
        let mut plain = Content::NEW;
        (0..1000).for_each(|_| plain.add(Node::Plain));
        assert_eq!(steps(10, plain), []);
    }

    #[test]
    fn lines_of_work_take_what_they_took_in_vllm() {
        // Of engines with 17 to 33 graphs for each size of a batch: after these one more chunk.
        let mut graphs = Graphs::default();
        let mut found = Vec::new();
        let mut before = 0;
        for at in 1..=170 {
            graphs.add(Content::NEW);
            let now = graphs.beside_streams();
            if now != before {
                found.push(at);
            }
            before = now;
        }
        assert_eq!(found, [9, 36, 41, 73, 79, 105, 122, 137, 164, 169]);
        (0..170).for_each(|_| graphs.remove(Content::NEW));
        assert_eq!(graphs.beside_streams(), before, "the driver keeps it");
        (0..170).for_each(|_| graphs.add(Content::NEW));
        assert_eq!(graphs.beside_streams(), before, "and gives it to others");
    }

    #[test]
    fn graphs_of_pytorch_take_what_they_took_on_a_card() {
        // MiB after so many graphs of so many kernels with so many bytes, on an H100 and an H200 (`bench/results/raw/driver`).
        let rows = [
            (5, 1, 8, 0),
            (10, 1, 8, 2),
            (50, 1, 8, 6),
            (100, 1, 8, 10),
            (200, 1, 8, 20),
            (300, 1, 8, 34),
            (500, 1, 8, 54),
            (200, 50, 8, 40),
            (200, 100, 8, 64),
            (20, 1000, 8, 48),
            (200, 20, 4000, 52),
            (50, 100, 4000, 56),
            (500, 5, 1720, 60),
        ];
        for (count, kernels, parameters, mib) in rows {
            let mut graphs = Graphs::default();
            (0..count).for_each(|_| graphs.add(of(kernels, parameters)));
            assert_eq!(
                graphs.beside_streams() / MIB,
                mib,
                "{count} of {kernels} with {parameters} bytes"
            );
        }
    }
}
