//! One device of one recording as something to look at: any window of its time at any level of detail,
//! what was live at any moment, and where it lay.
//!
//! A **position** is a moment: 0 is before the first event, `p` is after the `p`-th. Every number comes
//! out of the same replay and the same rules as `explain`'s; nothing here knows how it will be drawn.

mod block;
mod changed;
mod columns;
mod device;
mod facts;
mod group;
mod groups;
mod happened;
mod holes;
mod levels;
mod line;
mod lives;
mod map;
mod moment;
mod owners;
mod pools;
mod position;
mod program;
mod segments;
mod selection;
mod stacked;
mod window;

pub use block::BlockFacts;
pub use changed::Change;
pub use columns::{Columns, Extents};
pub use device::{Scene, Scenes};
pub use facts::{Axis, Band, Facts, Label, Refusal, Step};
pub use group::{Group, Grouping, Held};
pub use happened::Happened;
pub use line::{Code, Line};
pub use map::{Map, MapBlock, MapSegment, MapState};
pub use moment::{Moment, Row, Tree, TreeNode, Trees, Weigh};
pub use position::{LifeId, Position};
pub use program::Counterfactual;
pub use selection::{Hit, Pick, Selection};
pub use stacked::Layer;
pub use window::{Column, Piece, Window, WindowRequest};
