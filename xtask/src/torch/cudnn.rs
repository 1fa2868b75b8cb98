//! How a cuDNN lays a device out in the memory of its descriptor: asked of the library itself, which needs no GPU for it.

use std::{fs, process::Command};

use anyhow::Context as _;
use plimsoll_core::cards;
use regex_lite::Regex;

use super::{
    place::root,
    wheels::{Wheel, Wheels},
};

/// Makes a descriptor of a device (type 38) from JSON (attribute 2702), and looks for its version, its clusters and its name in
/// what the descriptor points to. Prints `version 0x68, skylines [0x74, 0xd4], name 0x154`, or nothing for a cuDNN without such.
const ASK: &str = r#"
import ctypes, struct, sys
folder, json, version, name = sys.argv[1:]
try:
    graph = ctypes.CDLL(folder + "/libcudnn_graph.so.9")
except OSError as error:
    sys.exit(str(error))
made = ctypes.c_void_p()
if graph.cudnnBackendCreateDescriptor(38, ctypes.byref(made)) != 0:
    sys.exit(0)
text = json.encode() + b"\0"
if graph.cudnnBackendSetAttribute(made, 2702, 24, ctypes.c_int64(len(text)), text) != 0 or graph.cudnnBackendFinalize(made) != 0:
    sys.exit("cuDNN does not take the description")
held = ctypes.string_at(made.value + 0x18, 0x300)
at = held.index(name.encode() + b"\0")
places = [it for it in range(0, at, 4) if held[it : it + 4] == struct.pack("<i", int(version))]
lists = [it for it in range(0, at, 4) if held[it : it + 4] == struct.pack("<i", 18) and not any(held[it + 4 : it + 96])]
print("version %s, skylines %s, name %#x" % (places and hex(places[0]), [hex(it) for it in lists], at))
"#;

/// What the library says, in words; none if it knows no such descriptor.
pub(super) fn layout(wheels: &Wheels, dnn: &Wheel) -> anyhow::Result<Option<String>> {
    let folder = wheels.folder.join("cudnn");
    for name in ["libcudnn_graph", "libcudnn_engines_runtime_compiled"] {
        dnn.unpack(&format!("nvidia/cudnn/lib/{name}"), &folder)?;
    }
    let card = cards::find("h200").context("the catalogue has an H200")?;
    let (major, minor) = card.compute_capability;
    let ran = Command::new(&wheels.python)
        .args(["-c", ASK])
        .arg(&folder)
        .env("LD_LIBRARY_PATH", &folder) // The first looks for the second.
        .args([card.cudnn_json(), (100 * major + 10 * minor).to_string(), card.name.clone()])
        .output()
        .with_context(|| format!("cannot run {}", wheels.python))?;
    fs::remove_dir_all(&folder)?;
    let said = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    if said.is_empty() && !ran.status.success() {
        anyhow::bail!("cuDNN could not be asked: {}", String::from_utf8_lossy(&ran.stderr).trim());
    }
    Ok(Some(said).filter(|it| !it.is_empty()))
}

/// Whether `dnn.rs` has it: its version, its first list and its name.
pub(super) fn is_known(layout: &str) -> anyhow::Result<bool> {
    let text = fs::read_to_string(root().join("crates/phantom/src/border/dnn.rs"))?;
    let known = Regex::new(r"Layout \{ version: (\w+), skylines: \[(\w+), \w+\], name: (\w+) \}")?;
    let numbers = Regex::new(r"0x[0-9a-f]+")?;
    let said: Vec<&str> = numbers.find_iter(layout).map(|it| it.as_str()).collect();
    let is_it =
        |it: regex_lite::Captures<'_>| [&it[1], &it[2], &it[3]].iter().all(|it| said.contains(it));
    Ok(known.captures_iter(&text).any(is_it))
}
