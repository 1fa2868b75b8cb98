//! Which commands start a server of a serving engine.

use std::{ffi::OsStr, path::Path};

/// Whether the command is `vllm serve`, or vLLM's module of the same.
pub(crate) fn is_server<T: AsRef<OsStr>>(words: &[T]) -> bool {
    let of_vllm = |word: &T| {
        let name = Path::new(word).file_name().unwrap_or_default();
        name == "vllm" || name.to_string_lossy().starts_with("vllm.entrypoints")
    };
    let serves = |word: &T| {
        word.as_ref() == "serve" || word.as_ref().to_string_lossy().ends_with("api_server")
    };
    words.iter().any(of_vllm) && words.iter().any(serves)
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
        ] {
            assert!(is_server(&it.split(' ').collect::<Vec<_>>()), "{it}");
        }
        for it in ["python serve.py", "vllm bench latency", "python train.py --model vllm"] {
            assert!(!is_server(&it.split(' ').collect::<Vec<_>>()), "{it}");
        }
    }
}
