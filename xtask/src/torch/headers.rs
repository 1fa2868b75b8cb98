//! What CUDA's headers declare of what crosses the border: structures that the phantom fills in, and the arguments of
//! functions that it has code for.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::{libraries::Answers, wheels::Wheel};

/// Structures that functions of the phantom write or read.
const STRUCTURES: [&str; 10] = [
    "cudaDeviceProp",
    "cudaPointerAttributes",
    "cudaFuncAttributes",
    "cudaMemPoolProps",
    "cudaMemAccessDesc",
    "cudaLaunchConfig_st",
    "cudaLaunchAttribute_st",
    "cudaIpcMemHandle_st",
    "cudaIpcEventHandle_st",
    "cudaMemcpy3DParms",
];

/// Declarations by name, without blanks that mean nothing.
#[derive(Default)]
pub(super) struct Headers {
    structures: BTreeMap<String, Vec<String>>,
    functions: BTreeMap<String, String>,
}

impl Headers {
    pub(super) fn of(runtime: &Wheel) -> anyhow::Result<Headers> {
        let mut res = Headers::default();
        let types = plain(&runtime.read_ending("include/driver_types.h")?)?;
        for name in STRUCTURES {
            let Some(at) = types.find(&format!(" {name} {{")) else { continue };
            let body = &types[at..];
            let end = body.find("};").unwrap_or(body.len());
            let members = body[..end].split_once('{').map_or("", |it| it.1);
            res.structures.insert(
                name.to_owned(),
                members
                    .split(';')
                    .map(|it| it.trim().to_owned())
                    .filter(|it| !it.is_empty())
                    .collect(),
            );
        }
        let functions = plain(&runtime.read_ending("include/cuda_runtime_api.h")?)?;
        let declared = Regex::new(r"cudaError_t CUDARTAPI (?:_CUDA_HOST_CXX )?(\w+)\(([^)]*)\)")?;
        for it in declared.captures_iter(&functions) {
            res.functions.insert(it[1].to_owned(), it[2].trim().to_owned());
        }
        Ok(res)
    }
}

/// Without comments and attributes, one blank between words.
fn plain(text: &str) -> anyhow::Result<String> {
    let text = Regex::new(r"(?s)/\*.*?\*/|//[^\n]*")?.replace_all(text, " ");
    let text =
        Regex::new(r"__(?:dv|device_builtin__|cudart_builtin__|host__|align__)(?:\([^)]*\))?")?
            .replace_all(&text, " ");
    let text = Regex::new(r"\s+")?.replace_all(&text, " ");
    Ok(text.replace(" ,", ",").replace(" )", ")").replace("( ", "("))
}

/// What is another declaration than it was, for people.
pub(super) fn changes(then: &Headers, now: &Headers, answers: &Answers) -> Vec<String> {
    let mut res = Vec::new();
    for (name, members) in &now.structures {
        let old = then.structures.get(name);
        if old == Some(members) {
            continue;
        }
        let old = old.map(Vec::as_slice).unwrap_or_default();
        let new: Vec<&str> =
            members.iter().filter(|it| !old.contains(it)).map(String::as_str).collect();
        let gone: Vec<&str> =
            old.iter().filter(|it| !members.contains(it)).map(String::as_str).collect();
        res.push(format!("struct {name}: new [{}], gone [{}]", new.join("; "), gone.join("; ")));
    }
    for (name, arguments) in &now.functions {
        match then.functions.get(name) {
            Some(old) if old != arguments && answers.imitates(name) => {
                res.push(format!("{name}({arguments}), before ({old})"));
            }
            _ => {}
        }
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_attributes_do_not_count() {
        let text =
            "struct __device_builtin__ cudaX { /** which\n one */ int a; // old\n  char  b[3] ; };";
        assert_eq!(plain(text).expect("patterns"), "struct cudaX { int a; char b[3] ; };");
    }
}
