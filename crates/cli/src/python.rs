//! What a Python interpreter has, asked of itself without importing torch (that takes seconds).

use std::{path::Path, process::Command};

use serde_json::Value;

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
print()
print(json.dumps({'executable': sys.executable, 'version': platform.python_version(),
                  'implementation': platform.python_implementation(), 'libc': ' '.join(platform.libc_ver()),
                  'torch': torch}))
";

/// What an interpreter says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) executable: String,
    pub(crate) version: String,
    pub(crate) implementation: String,
    pub(crate) libc: String,
    pub(crate) torch: Option<Torch>,
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
    let output =
        Command::new(python).args(["-c", PROBE]).args(agent).output().map_err(|error| {
            anyhow::anyhow!("cannot run {shown}: {}", crate::cache::reason(&error))
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: Option<Value> = text.lines().last().and_then(|it| serde_json::from_str(it).ok());
    let Some(answer) = answer else {
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().last().unwrap_or("it printed nothing").trim();
        anyhow::bail!("{shown} does not answer as a Python 3 would: {last}");
    };
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let torch = answer.get("torch").filter(|it| !it.is_null()).map(|it| Torch {
        version: text(it, "version"),
        cuda: text(it, "cuda"),
        path: text(it, "path").unwrap_or_default(),
        is_condas: it.get("is_condas").and_then(Value::as_bool).unwrap_or(false),
        support: support(text(it, "standing"), text(it, "why")),
    });
    Ok(Probe {
        executable: text(&answer, "executable").unwrap_or_default(),
        version: text(&answer, "version").unwrap_or_default(),
        implementation: text(&answer, "implementation").unwrap_or_default(),
        libc: text(&answer, "libc").unwrap_or_default(),
        torch,
    })
}

fn support(standing: Option<String>, why: Option<String>) -> Option<Support> {
    let standing = standing?;
    let all =
        [Standing::Supported, Standing::Experimental, Standing::Unknown, Standing::Unsupported];
    let standing = all.into_iter().find(|it| it.name() == standing)?;
    Some(Support { standing, why: why? })
}
