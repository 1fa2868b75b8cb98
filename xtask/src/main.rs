//! What cargo cannot do. Its tests hold the rules about the code.
fn main() {}
