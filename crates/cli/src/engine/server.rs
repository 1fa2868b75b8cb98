//! Which commands start a server of a serving engine.

use std::{ffi::OsStr, path::Path};

use plimsoll_core::recording::ENGINES;

/// Whether the command is `vllm serve` or `sglang serve`, or the engine's module of the same.
pub(crate) fn is_server<T: AsRef<OsStr>>(words: &[T]) -> bool {
    let of_an_engine = |word: &T| {
        let name = Path::new(word).file_name().unwrap_or_default().to_string_lossy();
        ENGINES.iter().any(|it| name == it.id)
            || name.starts_with("vllm.entrypoints")
            || name.starts_with("sglang.")
    };
    let serves = |word: &T| {
        let text = word.as_ref().to_string_lossy();
        text == "serve"
            || ["api_server", "launch_server", "launch_server.py"]
                .iter()
                .any(|it| text.ends_with(it))
    };
    let paths = |word: &T| word.as_ref().to_string_lossy().ends_with("sglang/launch_server.py");
    words.iter().any(of_an_engine) && words.iter().any(serves) || words.iter().any(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_commands() {
        for it in [
            "vllm serve m",
            "python -m vllm.entrypoints.openai.api_server --model m",
            "/env/bin/vllm serve m",
            "python -m sglang.launch_server --model-path m",
            "python /env/sglang/launch_server.py --model-path m",
            "sglang serve --model-path m",
        ] {
            assert!(is_server(&it.split(' ').collect::<Vec<_>>()), "{it}");
        }
        for it in [
            "python serve.py",
            "vllm bench latency",
            "python -m sglang.bench_one_batch",
            "python train.py --model vllm",
        ] {
            assert!(!is_server(&it.split(' ').collect::<Vec<_>>()), "{it}");
        }
    }
}
