//! Blocks keep their input only, and run again when backward reaches them.

use super::{Kind, Numbers, Offer};
use crate::plan::{
    Remedy,
    change::{Edit, Place},
};

pub(super) const KIND: Kind = Kind {
    id: "checkpoint",
    what: "blocks keep their input only, and run again when backward reaches them",
    numbers: Numbers::Same,
    offer: Offer::Usual,
    change,
    page: include_str!("checkpoint.md"),
};

fn change(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = place.sites.only("optimizer")?;
    let model = site.model.as_ref().filter(|_| !site.blocks.is_empty())?;
    let names: Vec<&str> = match remedy.numbers("blocks") {
        Some(all) => {
            let named = |it: &u64| site.blocks.get(usize::try_from(*it).ok()?).map(String::as_str);
            all.iter().map(named).collect::<Option<_>>()?
        }
        None => site.blocks.iter().map(String::as_str).collect(),
    };
    let cache =
        if site.cache { format!("{model}.config.use_cache = False\n") } else { String::new() };
    let (values, name) = written(&names);
    let text = format!(
        "{cache}\
         # these run again in backward instead of keeping their activations\n\
         for checkpointed in {values}:\n\
         \x20   checkpointed = {model}.get_submodule({name})\n\
         \x20   checkpointed.forward = functools.partial(\n\
         \x20       torch.utils.checkpoint.checkpoint, checkpointed.forward, use_reentrant=False\n\
         \x20   )\n"
    );
    // At the top of the file: a name that is imported inside a function is another one there.
    let imports = "import functools\n\nimport torch.utils.checkpoint";
    let torch = place.sites.torch(&site.file)?;
    Some(vec![Edit::after_line(&site.file, torch, imports), Edit::after(site, &text)])
}

/// What a loop over these modules goes through, and how each is named then: `[0, 2]` and `f"h.{checkpointed}"`.
fn written(names: &[&str]) -> (String, String) {
    let numbered: Option<Vec<(&str, u64)>> = names
        .iter()
        .map(|it| {
            let (list, number) = it.rsplit_once('.').unwrap_or(("", it));
            Some((list, number.parse().ok()?))
        })
        .collect();
    match numbered.as_deref() {
        Some([(list, first), rest @ ..]) if rest.iter().all(|it| it.0 == *list) => {
            let all: Vec<u64> = std::iter::once(*first).chain(rest.iter().map(|it| it.1)).collect();
            let is_range = all.iter().zip(*first..).all(|(a, b)| *a == b);
            let values = match (is_range, first) {
                (true, 0) => format!("range({})", all.len()),
                (true, first) => format!("range({first}, {})", first + all.len() as u64),
                (false, _) => format!("{all:?}"),
            };
            let prefix = if list.is_empty() { String::new() } else { format!("{list}.") };
            (values, format!("f\"{prefix}{{checkpointed}}\""))
        }
        _ => (format!("{names:?}"), "checkpointed".to_owned()),
    }
}
