# What developers run. `just check` takes seconds, `just verify` is the whole gate and never writes, `just fix` writes.

set shell := ["bash", "-euo", "pipefail", "-c"]

default:
    @just --list

# Formatting and lints.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Everything that CI asks.
verify:
    bash .ci/run

# Formats, applies lint suggestions, rewrites generated reference pages and golden samples.
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
    UPDATE_GOLDEN=1 cargo test --workspace --lib --test '*' -- golden reference openapi configuration
    cargo fmt --all

# What needs no further tools; the rest reads as ignored.
test:
    cargo test --workspace

# Installs what the tests need and runs them, or only those that are named: `just tests pact ca/test_roll -k retire`.
tests *ARGS:
    bash tests/run {{ARGS}}

# Installs what the tests need: Debian packages, a Python environment in target/venv, promtool.
setup:
    bash tests/setup

# CPU per enrollment against the floor measured in the same run, native and through each door; durable enrollments per
# second; the times of refusals that must look alike. What live streams cost, and how soon a revoked node is cut off. What three
# replicas cost beside one.
bench *ARGS:
    cargo build --release --workspace
    cargo bench -p enlist --bench enrollment -- {{ARGS}}
    cargo bench -p enlist --bench doors -- {{ARGS}}
    cargo bench -p enlist --bench revocation -- {{ARGS}}
    cargo bench -p enlist --bench cluster -- {{ARGS}}

# The long runs: full numbers of rounds, ten minutes per fuzz target. See docs/robustness.md.
soak:
    bash tests/soak
