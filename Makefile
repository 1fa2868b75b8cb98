# What people need; everything else is cargo. `make demo` and `make test` work on a fresh machine with
# cargo, python3, pip and a network to the registries.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# A recipe is one script, so that `-e` holds for all of it and variables last.
.ONESHELL:

# In the order that they are shown.
EXAMPLES := finetune_gpt2.py train_resnet50.py
CARDS := rtx4060-8g rtx3090
PLIMSOLL := $(or $(CARGO_TARGET_DIR),target)/release/plimsoll
# What cargo builds for the tests: with checks of overflow, and without what only a debugger reads.
TESTED := $(or $(CARGO_TARGET_DIR),target)/debug/plimsoll
# Clippy's driver is the compiler, so that what is checked need not be compiled a second time.
FOR_TESTS := CARGO_PROFILE_DEV_DEBUG=0 RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__

.PHONY: help build demo test test-setup test-built test-rust test-python soak wheel wheel-check release screenshots site clean

help:
	@echo 'make build   builds $(PLIMSOLL), one file with everything in it'
	@echo 'make demo    predicts the examples on an 8 GB and a 24 GB card'
	@echo 'make test    everything that has to pass'
	@echo 'make soak    the same without shortcuts, and what takes long: before a release'
	@echo 'make wheel   the Python package as a wheel and as sources, tried in an environment of its own'
	@echo 'make release  everything that a release has, in target/published'
	@echo 'make screenshots  the pictures of docs/view.md, from the real page'
	@echo 'make site    the documents as a site with search, in target/site'

build:
	cargo build --release --package plimsoll

# Exit code 1 says that a script does not fit the card: an answer, not a failure.
demo: build
	@python=$$(tools/python-with-torch examples/requirements.txt)
	for example in $(EXAMPLES); do
	  for card in $(CARDS); do
	    printf '\n$$ plimsoll predict --gpu %s -- python examples/%s\n\n' "$$card" "$$example"
	    code=0
	    $(PLIMSOLL) predict --gpu "$$card" -- "$$python" "examples/$$example" || code=$$?
	    if [ "$$code" -gt 1 ]; then exit "$$code"; fi
	  done
	done

# While cargo compiles, pip and apt load what the tests in Python need. The tests in Rust leave a processor idle half of the time,
# so those in Python run beside them; what those in Rust said comes last.
test:
	@SECONDS=0
	mkdir -p target
	$(MAKE) --no-print-directory test-setup > target/test-setup.log 2>&1 & setup=$$!
	trap 'kill $$setup $${rust:-} 2>/dev/null || true' EXIT
	$(MAKE) --no-print-directory test-built
	wait $$setup || { cat target/test-setup.log; exit 1; }
	$(MAKE) --no-print-directory test-rust > target/test-rust.log 2>&1 & rust=$$!
	python=0; $(MAKE) --no-print-directory test-python || python=$$?
	failed=0; wait $$rust || failed=$$?
	cat target/test-rust.log
	[ "$$python$$failed" = 00 ] || { echo "make test failed: Python $$python, Rust $$failed"; exit 1; }
	echo "make test: $$((SECONDS / 60)) min $$((SECONDS % 60)) s"

# One choice of packages for all that is compiled: another would build their dependencies again, with other features.
test-built:
	@cargo fmt --all --check
	$(FOR_TESTS) cargo test --workspace --lib --bins --tests --examples --no-run

test-setup:
	@python=$$(tools/python-with-torch tests/requirements.txt)
	# Beside the environment: with it there transformers asks for the GPU when it is imported.
	[ -d target/torchao ] || "$$python" -m pip install --quiet --no-deps --target target/torchao torchao==0.18.0
	tools/chromium
	# Else each worker of pytest compiles all tests by itself.
	env -u PYTHONDONTWRITEBYTECODE "$$python" -m pytest -n0 --quiet --collect-only tests >/dev/null

# A test of Rust says on its line how long it took; only libtest reads RUSTC_BOOTSTRAP here, and nothing is compiled with it.
test-rust:
	@mkdir -p target
	export $(FOR_TESTS)
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='env RUSTC_BOOTSTRAP=1' \
	  cargo test --workspace --lib --bins --tests --examples --no-fail-fast -- -Z unstable-options --report-time | tee target/test-rust-times.log
	if command -v cargo-deny >/dev/null; then cargo deny check; else echo 'cargo-deny is not installed: licences and advisories were not checked'; fi
	printf '\nThe ten slowest tests in Rust:\n'
	sed -nE 's/^test (.*) \.\.\. ok <([0-9.]+)s>$$/\2 s  \1/p' target/test-rust-times.log | sort -rn | sed -n '1,10p'

# Training scripts on the phantom, the commands that the manual shows, and mypy and ruff on the agent, the package and the tests (tests/python/test_package.py).
test-python: test-built
	@python=$$(tools/python-with-torch tests/requirements.txt)
	PLIMSOLL_CHROMIUM=$$(tools/chromium)
	export PLIMSOLL_CHROMIUM
	PLIMSOLL_BIN=$$(realpath $(TESTED)) PLIMSOLL_PYTHON="$$python" "$$python" -m pytest --quiet --durations=10 tests

# Before a release: all that `make test` runs, each script in a process of its own, and what it leaves out because it takes
# long. It begins by saying what that is.
soak: build
	@cargo test --package plimsoll --package plimsoll-writes --package plimsoll-lint -- --ignored
	cargo test --release --package plimsoll-core --test core replay_agrees_with_reference
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet
	cargo test --workspace --doc
	cargo check --quiet --package plimsoll --no-default-features
	python=$$(tools/python-with-torch tests/requirements.txt)
	PLIMSOLL_CHROMIUM=$$(tools/chromium)
	export PLIMSOLL_CHROMIUM PLIMSOLL_COLD=1
	# As many at a time as there is memory for: each takes up to 2 GB, and what it starts some more.
	at_once=$$(awk '/MemAvailable/ { print 1 + int($$2 / 4000000) }' /proc/meminfo)
	PLIMSOLL_BIN=$$(realpath $(PLIMSOLL)) PLIMSOLL_PYTHON="$$python" "$$python" -m pytest --durations=10 --maxprocesses "$$at_once" -m '' tests

# The Python package: the source distribution, the wheel that is made from it, and both looked into and tried. Needs no
# torch. Minutes: the program is built once more, as maturin builds it.
wheel:
	@rm -rf target/wheel
	python3 -m venv target/wheel/tools
	target/wheel/tools/bin/python -m pip install --quiet 'maturin>=1.9,<2' mypy
	target/wheel/tools/bin/maturin sdist --out target/wheel
	target/wheel/tools/bin/python -m pip wheel --quiet --no-deps --wheel-dir target/wheel target/wheel/plimsoll_gpu-*.tar.gz
	target/wheel/tools/bin/python tools/wheel-check target/wheel/plimsoll_gpu-*.whl

# Everything that a release has, in target/published: the wheel for glibc 2.28 and later, the sources, one tarball with the program, completions and man
# pages, what it is made of, checksums. The same commit gives the same files. Minutes: the program is built once more.
release:
	@tools/release

# What `make wheel` left in target/wheel, in seconds; nothing is compiled.
wheel-check:
	@if [ ! -d target/wheel/tools ]; then echo 'nothing lies in target/wheel: make wheel'; exit 1; fi
	target/wheel/tools/bin/python tools/wheel-check target/wheel/plimsoll_gpu-*.whl

# The viewer as the manual shows it; needs Chromium.
screenshots: build
	@python=$$(tools/python-with-torch tests/requirements.txt)
	PLIMSOLL_BIN=$$(realpath $(PLIMSOLL)) "$$python" tools/screenshots docs/pictures

# docs/ as a site with search, in target/site. mkdocs is installed beside it, not into your Python.
site: build
	@if [ ! -x target/site-tools/bin/mkdocs ]; then
	  python3 -m venv target/site-tools
	  target/site-tools/bin/python -m pip install --quiet --requirement docs/requirements.txt
	fi
	NO_MKDOCS_2_WARNING=1 PLIMSOLL_BIN=$$(realpath $(PLIMSOLL)) target/site-tools/bin/mkdocs build --strict --quiet --site-dir target/site
	echo 'target/site/index.html; with search: python3 -m http.server --directory target/site'

clean:
	cargo clean
