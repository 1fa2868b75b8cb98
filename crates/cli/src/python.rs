//! What a Python interpreter has, asked of itself without importing torch (that takes seconds).

use std::{path::Path, process::Command};

use serde_json::Value;

/// The answer is the last line that it prints; a user's `sitecustomize` may print, too.
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
}

/// Asks `python`, in the environment that a script would get.
pub(crate) fn probe(python: &Path) -> anyhow::Result<Probe> {
    let shown = python.display();
    let output = Command::new(python)
        .args(["-c", PROBE])
        .output()
        .map_err(|error| anyhow::anyhow!("cannot run {shown}: {}", crate::cache::reason(&error)))?;
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
    });
    Ok(Probe {
        executable: text(&answer, "executable").unwrap_or_default(),
        version: text(&answer, "version").unwrap_or_default(),
        implementation: text(&answer, "implementation").unwrap_or_default(),
        libc: text(&answer, "libc").unwrap_or_default(),
        torch,
    })
}
