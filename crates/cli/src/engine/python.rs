//! Programs of ours in the user's Python; above all what an interpreter has, asked of itself without importing torch (that takes seconds).

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
};

use serde_json::Value;

/// How each program of ours begins. Python looks for modules in the working folder first, which may be a stranger's: a `json.py`
/// there is no business of ours. Only a script that the user starts imports it.
pub(crate) const NOTHING_OF_THIS_FOLDER: &str = "import sys
if sys.path[:1] == ['']: del sys.path[0]
";

/// The variable in which people say where modules are.
pub(crate) const PATH: &str = "PYTHONPATH";

/// What `-c` takes for `program`, one of ours.
pub(crate) fn ours(program: &str) -> OsString {
    (NOTHING_OF_THIS_FOLDER.to_owned() + program).into()
}

/// What `-c` takes to run `module`, one of the agent's.
pub(crate) fn our_module(module: &str) -> OsString {
    ours(&format!(
        "import runpy; runpy.run_module({module:?}, run_name='__main__', alter_sys=True)"
    ))
}

/// The value of [`PATH`] for a program of ours: `first`, and what the user says, but for what is relative to the working folder.
pub(crate) fn path(first: Option<&OsStr>) -> OsString {
    let users = env::var_os(PATH).unwrap_or_default();
    let mut res = first.unwrap_or_default().to_owned();
    for folder in env::split_paths(&users).filter(|it| it.is_absolute()) {
        if !res.is_empty() {
            res.push(":");
        }
        res.push(folder);
    }
    res
}

/// The answer is the last line that it prints; a user's `sitecustomize` may print, too. With the agent's folder
/// as its argument, the agent says how far that torch is supported.
const PROBE: &str = "\
import importlib.util, json, os, platform, sys
torch = None
spec = importlib.util.find_spec('torch')
if spec is not None:
    torch = {'version': None, 'cuda': None, 'path': os.path.dirname(spec.origin) if spec.origin else None}
    try:
        names = {}
        exec(open(os.path.join(torch['path'], 'version.py')).read(), names)
        torch['version'] = str(names['__version__'])
        torch['cuda'] = names.get('cuda')
    except Exception:
        pass
    if sys.argv[1:]:
        sys.path.insert(0, sys.argv[1])
        sys.dont_write_bytecode = True
        from plimsoll_agent import torch_builds
        conda = os.path.join(sys.prefix, 'conda-meta')
        names = os.listdir(conda) if os.path.isdir(conda) else []
        torch['is_condas'] = any(it.startswith(('pytorch-', 'libtorch-')) for it in names)
        torch['standing'], torch['why'] = torch_builds.verdict(spec.origin)
package = None
spec = importlib.util.find_spec('plimsoll')
if spec is not None and spec.origin:
    package = {'version': None, 'path': os.path.dirname(spec.origin)}
    package['is_ours'] = os.path.exists(os.path.join(package['path'], '_binary.py'))
    try:
        from importlib import metadata
        package['version'] = metadata.version('plimsoll-gpu')
    except Exception:
        pass
print()
print(json.dumps({'executable': sys.executable, 'version': platform.python_version(),
                  'implementation': platform.python_implementation(), 'libc': ' '.join(platform.libc_ver()),
                  'torch': torch, 'package': package}))
";

/// What an interpreter says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) executable: String,
    pub(crate) version: String,
    pub(crate) implementation: String,
    pub(crate) libc: String,
    pub(crate) torch: Option<Torch>,
    pub(crate) package: Option<Package>,
}

/// The package `plimsoll` that an interpreter would import.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// None for one that nobody installed: a checkout in the path.
    pub(crate) version: Option<String>,
    pub(crate) path: String,
    /// Another project has a package of this name.
    pub(crate) is_ours: bool,
}

/// The torch that an interpreter would import.
#[derive(Clone, Debug)]
pub(crate) struct Torch {
    /// None for a folder that only has this name.
    pub(crate) version: Option<String>,
    /// The version of CUDA that it was built for; none for a CPU build.
    pub(crate) cuda: Option<String>,
    pub(crate) path: String,
    /// Whether conda installed it.
    pub(crate) is_condas: bool,
    /// What the agent says of it, where it was asked.
    pub(crate) support: Option<Support>,
}

/// How far a torch is supported.
#[derive(Clone, Debug)]
pub(crate) struct Support {
    pub(crate) standing: Standing,
    /// A sentence, without a capital letter and a full stop.
    pub(crate) why: String,
}

/// The agent's four words for it (`torch_builds.py`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Predictions have been compared with GPUs.
    Supported,
    /// Has been tried, and not compared.
    Experimental,
    /// Nobody has tried it. The phantom answers what it asks CUDA for.
    Unknown,
    /// Is refused.
    Unsupported,
}

impl Standing {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Standing::Supported => "supported",
            Standing::Experimental => "experimental",
            Standing::Unknown => "unknown",
            Standing::Unsupported => "unsupported",
        }
    }
}

/// Asks `python`, in the environment that a script would get, and the agent in that folder.
pub(crate) fn probe(python: &Path, agent: Option<&Path>) -> anyhow::Result<Probe> {
    let shown = python.display();
    let mut process = Command::new(python);
    process.arg("-c").arg(ours(PROBE)).args(agent).env(PATH, path(None));
    let output = process
        .output()
        .map_err(|error| anyhow::anyhow!("cannot run {shown}: {}", crate::cache::reason(&error)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: Option<Value> = text.lines().last().and_then(|it| serde_json::from_str(it).ok());
    let Some(answer) = answer else {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("it printed nothing").trim();
        anyhow::bail!("{shown} does not answer like a Python 3: {last}");
    };
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let torch = answer.get("torch").filter(|it| !it.is_null()).map(|torch| Torch {
        version: text(torch, "version"),
        cuda: text(torch, "cuda"),
        path: text(torch, "path").unwrap_or_default(),
        is_condas: torch.get("is_condas").and_then(Value::as_bool).unwrap_or(false),
        support: support(text(torch, "standing"), text(torch, "why")),
    });
    let package = answer.get("package").filter(|it| !it.is_null()).map(|package| Package {
        version: text(package, "version"),
        path: text(package, "path").unwrap_or_default(),
        is_ours: package.get("is_ours").and_then(Value::as_bool).unwrap_or(false),
    });
    Ok(Probe {
        executable: text(&answer, "executable").unwrap_or_default(),
        version: text(&answer, "version").unwrap_or_default(),
        implementation: text(&answer, "implementation").unwrap_or_default(),
        libc: text(&answer, "libc").unwrap_or_default(),
        torch,
        package,
    })
}

fn support(standing: Option<String>, why: Option<String>) -> Option<Support> {
    let standing = standing?;
    let all =
        [Standing::Supported, Standing::Experimental, Standing::Unknown, Standing::Unsupported];
    let standing = all.into_iter().find(|it| it.name() == standing)?;
    Some(Support { standing, why: why? })
}
