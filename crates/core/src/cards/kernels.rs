//! Which PyTorch has kernels for a card.

use crate::cards::Card;

impl Card {
    /// What to install where the PyTorch at hand has no kernels for the card; none if nothing is known.
    ///
    /// Source: PyTorch's matrices of releases (issues 157517, 172352, 190385): its wheels for CUDA 12.6 have kernels from
    /// compute capability 5.0 on, up to release 2.14, and were what PyPI had up to 2.7; Blackwell is in wheels for CUDA
    /// 12.8 and later, which PyPI has since 2.8.
    pub fn torch_with_kernels(&self) -> Option<&'static str> {
        match self.compute_capability {
            (5..=6, _) | (7, 0..=4) => Some(
                "pip install 'torch==2.7.*', or a wheel for CUDA 12.6 up to 2.14 (--index-url \
                 https://download.pytorch.org/whl/cu126)",
            ),
            (10.., _) => Some("pip install 'torch>=2.8'"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cards::find;

    #[test]
    fn old_and_new_cards_are_told_what_has_kernels_for_them() {
        let told = |name: &str| find(name).unwrap().torch_with_kernels().unwrap_or_default();
        assert!(told("v100").contains("torch==2.7.*"));
        assert!(told("gtx1080ti").contains("torch==2.7.*"));
        assert!(told("rtx5090").contains("torch>=2.8"));
        assert_eq!(told("t4"), "");
        assert_eq!(told("h200"), "");
    }
}
