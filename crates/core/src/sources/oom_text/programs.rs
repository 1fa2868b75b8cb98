//! Which program a failure is of: its own line and the frames of its traceback say it, else lines near it.

use crate::{
    failures::{Backend, Failure, Program},
    sources::lines::Line,
};

/// Lines before and behind that are looked at: a report may have its traceback behind the message.
const NEAR: (usize, usize) = (80, 40);

/// What a line of each has, as it is written: frames, and what the engines' loggers put before a line.
const MARKS: &[(Program, &[&str])] = &[
    (
        Program::Vllm,
        &[
            "/vllm/v1/",
            "/vllm/worker/",
            "/vllm/engine/",
            "/vllm/executor/",
            "/vllm/model_executor/",
            "(EngineCore",
            "(Worker_TP",
            "(VllmWorker",
            "EngineCore failed to start",
            "[gpu_worker.py:",
            "[gpu_model_runner.py:",
            "[kv_cache_utils.py",
        ],
    ),
    (Program::Sglang, &["/sglang/srt/"]),
    (
        Program::Pictures,
        &[
            "/ComfyUI",
            "/comfy/",
            "ComfyUI Error",
            "unloading all loaded models",
            "[Memory Management] ",
            "[GPU Setting] ",
            "/diffusers/pipelines/",
        ],
    ),
    (
        Program::NotTorch,
        &[
            // Rust, Julia, MATLAB.
            "DriverError(CUDA",
            "/.julia/",
            "'gpuDevice(",
            // LMDeploy's engine, and libraries of their own.
            "[TM][",
            "openmm.OpenMMException",
            "/cuda/gpu_mat.cu",
            "LightGBM",
            "[Open3D Error]",
            "CacheAllocationFailure",
        ],
    ),
];

/// Fills in the program whose mark is nearest to line `at`, those before it first. A traceback that names none is of none of them: a training
/// may have an engine beside it, which writes into the same log.
pub(super) fn attach(failure: &mut Failure, lines: &[Line<'_>], at: usize) {
    let has_traceback = failure.innermost.is_some();
    let first = match has_traceback {
        true => lines[..at].partition_point(|it| it.number < failure.began),
        false => at.saturating_sub(NEAR.0),
    };
    let before = lines[first..=at].iter().rev();
    let behind = lines[at + 1..].iter().take(if has_traceback { 0 } else { NEAR.1 });
    // PyTorch's own messages are PyTorch's, whoever writes beside them.
    let may_be_another = matches!(failure.backend, Backend::CudaRuntime | Backend::Other);
    let marked = |line: &Line<'_>| {
        marked(&line.text).filter(|it| may_be_another || *it != Program::NotTorch)
    };
    failure.program = before.chain(behind).find_map(marked).unwrap_or_default();
    // A line from the runtime, or from nobody known, is PyTorch's where something shows Python or PyTorch.
    if failure.program == Program::Unknown
        && may_be_another
        && (is_of_another_package(failure.exception.as_deref())
            || !lines[at.saturating_sub(NEAR.0)..].iter().take(NEAR.0 + NEAR.1).any(shows_python))
    {
        failure.program = Program::NotTorch;
    }
}

/// What a text of a Python program has somewhere, in lower case.
const PYTHONS: &[&str] = &[
    "torch",
    "python",
    ".py",
    "traceback",
    "acceleratorerror",
    "notebook",
    "colab",
    "pip ",
    "conda",
    "jupyter",
    "trainer",
    "epoch",
    "cuda kernel errors",
    "import ",
    "nvcc",
    "tqdm",
    "it/s",
    "runtimeerror",
];

fn shows_python(line: &Line<'_>) -> bool {
    let line = line.text.to_ascii_lowercase();
    PYTHONS.iter().any(|it| line.contains(it))
}

/// Whether an exception's class is of a package that is not PyTorch: `pycuda._driver.MemoryError`.
fn is_of_another_package(exception: Option<&str>) -> bool {
    let package = exception.and_then(|it| it.split_once('.')).map(|it| it.0);
    package.is_some_and(|it| !["torch", "c10", "std"].contains(&it))
}

fn marked(line: &str) -> Option<Program> {
    if is_of_vllms_logger(line) {
        return Some(Program::Vllm);
    }
    let line = line.replace('\\', "/");
    MARKS.iter().find(|(_, marks)| marks.iter().any(|it| line.contains(it))).map(|it| it.0)
}

/// `ERROR 04-01 23:46:56 [engine.py:160] ...`: the level, a date without a year, and a file with a line.
fn is_of_vllms_logger(line: &str) -> bool {
    let is_like = |word: &str, like: &str| {
        word.len() == like.len()
            && word
                .bytes()
                .zip(like.bytes())
                .all(|(it, like)| if like == b'0' { it.is_ascii_digit() } else { it == like })
    };
    let words: Vec<&str> = line.split_whitespace().take(8).collect();
    words.windows(4).any(|it| {
        let file =
            it[3].strip_prefix('[').and_then(|it| it.trim_end_matches(':').strip_suffix(']'));
        ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"].contains(&it[0])
            && is_like(it[1], "00-00")
            && is_like(it[2], "00:00:00")
            && file.is_some_and(|it| it.contains(".py:"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_loggers_tell_whose_failure_it_is() {
        for (line, program) in [
            (
                "ERROR 04-01 23:46:56 [engine.py:160] torch.OutOfMemoryError: CUDA out of memory.",
                Some(Program::Vllm),
            ),
            (
                "(EngineCore_DP0 pid=17) ERROR 09-28 15:47:24 [core.py:718] ValueError",
                Some(Program::Vllm),
            ),
            (
                "  File \"/usr/lib/python3.12/dist-packages/vllm/v1/worker/gpu_worker.py\", line 588, in f",
                Some(Program::Vllm),
            ),
            (
                "  File \"/sgl/python/sglang/srt/model_executor/model_runner.py\", line 623, in g",
                Some(Program::Sglang),
            ),
            (
                "File \"D:\\packages\\ComfyUI\\nodes.py\", line 267, in decode",
                Some(Program::Pictures),
            ),
            (
                "  File \"/lib/diffusers/pipelines/flux/pipeline_flux.py\", line 9, in __call__",
                Some(Program::Pictures),
            ),
            ("  File \"/lib/diffusers/models/unets/unet_2d.py\", line 9, in forward", None),
            ("ERROR 2025-04-01 23:46:56 [train.py:160] CUDA out of memory", None),
            ("I trained it with vLLM beside it", None),
        ] {
            assert_eq!(marked(line), program, "{line}");
        }
    }
}
