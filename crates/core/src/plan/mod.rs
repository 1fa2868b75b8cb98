//! What to change so that a run fits: remedies, plans that combine them, and the search for the best one.
//! Nothing here says how much memory something takes; that is what a run on the phantom is for.

pub mod largest;
