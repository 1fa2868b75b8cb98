//! Whether a script empties or makes anew what it adds to, by its text.

use crate::reading::story::Story;

/// Whether the file empties a list, or makes it anew; what is an attribute here may be reached by other names elsewhere.
pub(super) fn is_emptied(story: &Story<'_, '_>, target: &str) -> bool {
    let attribute = target.rsplit_once('.').map(|(_, it)| format!(".{it}"));
    let name = attribute.as_deref().unwrap_or(target);
    let emptied = [".clear(", ".pop", "[:] = "].map(|it| format!("{name}{it}"));
    let deleted = story.file.text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("del ") && line.contains(name)
    });
    let is_emptied = emptied.iter().any(|it| story.file.text.contains(it.as_str()));
    let assigned = format!("{name} = ");
    let n_made =
        story.file.text.split(assigned.as_str()).skip(1).filter(|it| makes_one(it)).count();
    deleted || is_emptied || 1 < n_made
}

/// Whether a text begins with a new list or dictionary: `[]`, `{}`, `list()`, `deque(maxlen=9)`, or `self.empty()`, which may be one.
fn makes_one(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let (called, rest) = line.split_once('(').unwrap_or_default();
    let is_type = matches!(
        called.rsplit('.').next().unwrap_or_default(),
        "list" | "dict" | "deque" | "defaultdict" | "OrderedDict"
    );
    let is_own = called.starts_with("self.") && rest.starts_with(')');
    line.starts_with(['[', '{']) || is_type || is_own
}

/// Whether a text assigns to a name more than `times` times.
pub(super) fn is_made_again(text: &str, name: &str, times: usize) -> bool {
    times < text.matches(&format!("{name} = ")).count()
}
