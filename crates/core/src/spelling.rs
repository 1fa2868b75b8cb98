//! Names that people mistyped: which one they may have meant, and how that is said.

/// The names that are nearest to `given`, at most three; none if all are further than `most` letters away. Both are compared as `normal`
/// makes them.
pub fn nearest(
    given: &str,
    most: usize,
    names: impl IntoIterator<Item = impl AsRef<str>>,
    normal: impl Fn(&str) -> String,
) -> Vec<String> {
    let given = normal(given);
    // Letters changed, added, taken away, or swapped with their neighbour.
    let distance = |name: &str| strsim::osa_distance(&given, &normal(name));
    let mut near: Vec<(usize, String)> = names
        .into_iter()
        .map(|it| (distance(it.as_ref()), it.as_ref().to_owned()))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1).min(most))
        .collect();
    near.sort();
    near.dedup();
    let nearest = near.first().map(|(distance, _)| *distance);
    let near = near.into_iter().filter(|(distance, _)| Some(*distance) == nearest);
    near.take(3).map(|(_, name)| name).collect()
}

/// The name that was meant, or where no name is near, `rest`: what there is, or who lists it.
pub fn did_you_mean_or(near: &[String], rest: &str) -> String {
    if near.is_empty() { format!("; {rest}") } else { did_you_mean(near) }
}

/// The same for `given` among `names`; see [`meant`].
pub fn meant_or(given: &str, names: &[impl AsRef<str>], rest: &str) -> String {
    let meant = meant(given, names);
    if meant.is_empty() { format!("; {rest}") } else { meant }
}

/// What follows an error about a name that does not exist: `; did you mean ...?`, or nothing.
pub fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        [some @ .., last] => format!("; did you mean `{}` or `{last}`?", some.join("`, `")),
    }
}

/// The same for `given` among `names`, whatever its capitals and whatever stands between its words. Where none is near, those of which
/// `given` is a whole word.
pub fn meant(given: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let normal = |it: &str| it.to_lowercase().replace(['_', ' ', '/', '.'], "-");
    let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
    let mut near = nearest(given, 3, &names, normal);
    if near.is_empty() {
        let given = normal(given);
        let is_part = |name: &&String| normal(name).split('-').any(|part| part == given);
        near = names.iter().filter(is_part).take(3).cloned().collect();
    }
    did_you_mean(&near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_has_a_nearest_name_and_another_word_has_none() {
        let names = ["autocast", "offload", "optimizer-offload", "fused"];
        assert_eq!(meant("autocsat", names), "; did you mean `autocast`?");
        assert_eq!(meant("Optimizer_offload", names), "; did you mean `optimizer-offload`?");
        assert_eq!(
            meant("fragmentation", ["fragmentation/slack"]),
            "; did you mean `fragmentation/slack`?"
        );
        assert_eq!(meant("quantum", names), "");
        assert_eq!(meant("", names), "");
    }

    #[test]
    fn several_are_equally_near() {
        assert_eq!(meant("leak/b", ["leak/a", "leak/c"]), "; did you mean `leak/a` or `leak/c`?");
    }
}
