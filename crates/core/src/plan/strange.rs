//! What a plan's file says that no plan has: a slip of who wrote it, or something for another program. It is refused, because
//! leaving it out would apply another plan than the one that stands there.

use toml::de::{DeTable, DeValue};

use crate::spelling;

/// What stands outside the remedies.
const OF_PLAN: [&str; 4] = ["version", "predicted_reserved_bytes", "first_step", "remedy"];
const OF_FIRST_STEP: [&str; 5] = ["allocated_bytes", "reserved_bytes", "torch", "gpu", "inputs"];

/// The first thing in `table`, read from `text`, that no plan has: its line, from 1, and a sentence about it.
pub(super) fn find(table: &DeTable<'_>, text: &str) -> Option<(usize, String)> {
    let of_plan = unknown(table, &OF_PLAN, "a plan");
    let first_step = table.get("first_step").and_then(|it| it.get_ref().as_table());
    let of_first_step = first_step.and_then(|it| unknown(it, &OF_FIRST_STEP, "[first_step]"));
    let remedies = table.get("remedy").and_then(|it| it.get_ref().as_array());
    let of_remedies = remedies.into_iter().flatten().find_map(|it| control(it.get_ref()));
    let found = [of_plan, of_first_step, of_remedies].into_iter().flatten();
    let (at, sentence) = found.min_by_key(|it| it.0)?;
    let before = text.get(..at).unwrap_or(text);
    Some((1 + before.matches('\n').count(), sentence))
}

/// The first key that is none of `known`: where it stands, and a sentence.
fn unknown(table: &DeTable<'_>, known: &[&str], of: &str) -> Option<(usize, String)> {
    let strange = table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref()));
    let (key, value) = strange.min_by_key(|(key, _)| key.span().start)?;
    let name = key.get_ref().as_ref();
    let kind = if holds_tables(value.get_ref()) { "table" } else { "key" };
    let meant = match spelling::meant(name, known) {
        near if near.is_empty() => format!("; it has {}", known.join(", ")),
        near => near,
    };
    Some((key.span().start, format!("{of} has no {kind} {name:?}{meant}")))
}

fn holds_tables(value: &DeValue<'_>) -> bool {
    let is_table = |it: &DeValue<'_>| matches!(it, DeValue::Table(_));
    is_table(value)
        || value.as_array().is_some_and(|all| all.iter().any(|it| is_table(it.get_ref())))
}

/// Texts of a remedy become variables of the environment, and words of a report.
fn control(remedy: &DeValue<'_>) -> Option<(usize, String)> {
    let texts = remedy.as_table().into_iter().flatten();
    texts
        .filter(|(_, value)| {
            value.get_ref().as_str().is_some_and(|it| it.contains(char::is_control))
        })
        .map(|(key, value)| {
            let sentence = format!(
                "`{}` is {:?}, with a character that is none of a line of text; take that out",
                key.get_ref(),
                value.get_ref().as_str().unwrap_or_default()
            );
            (key.span().start, sentence)
        })
        .min_by_key(|it| it.0)
}

#[cfg(test)]
mod tests {
    use super::super::Plan;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Plan::parse(&format!("version = 1\n{text}")).unwrap_err().to_string();
        assert_eq!(error, expected);
    }

    #[test]
    fn what_no_plan_has_is_refused_with_its_line_and_the_nearest_name() {
        refused(
            "[[remedy]]\nid = \"fused\"\n\n[env]\nLD_PRELOAD = \"/x.so\"\n",
            "line 5: a plan has no table \"env\"; it has version, predicted_reserved_bytes, first_step, remedy",
        );
        refused(
            "[[remedys]]\nid = \"fused\"\n",
            "line 2: a plan has no table \"remedys\"; did you mean `remedy`?",
        );
        refused(
            "predicted_reserved_byte = 7\n",
            "line 2: a plan has no key \"predicted_reserved_byte\"; did you mean `predicted_reserved_bytes`?",
        );
        refused(
            "[first_step]\ngpus = \"T4\"\n",
            "line 3: [first_step] has no key \"gpus\"; did you mean `gpu`?",
        );
        // The first one is told.
        refused(
            "b = 1\na = 1\n",
            "line 2: a plan has no key \"b\"; it has version, predicted_reserved_bytes, first_step, remedy",
        );
    }

    #[test]
    fn a_setting_of_two_lines_is_refused() {
        refused(
            "[[remedy]]\nid = \"allocator\"\nsettings = \"a:1\\nLD_PRELOAD=/x.so\"\n",
            "line 4: `settings` is \"a:1\\nLD_PRELOAD=/x.so\", with a character that is none of a line of text; take that out",
        );
        refused(
            "[[remedy]]\nid = \"empty-cache\"\nafter = \"\\u001b[31mstep\"\n",
            "line 4: `after` is \"\\u{1b}[31mstep\", with a character that is none of a line of text; take that out",
        );
    }
}
