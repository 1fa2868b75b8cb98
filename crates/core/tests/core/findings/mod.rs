//! Recordings in, findings out: what is found, at which line, and what only looks like it and is not.

mod causes;
mod host;
mod kept;
mod later;
mod leaks;
mod pairs;
mod program;
mod unused;
mod weights;
