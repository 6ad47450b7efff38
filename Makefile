# Everything a developer runs by name. Each target sets up what it needs; see CONTRIBUTING.md.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test check clients soak bench bench-tunnel bench-mirror bench-session release

help: ## What there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## Install what a fresh Debian machine lacks (as root; else says what)
	@.ci/setup.sh build

demo: ## A real agent CLI on a host, its workspace, two audits, a receipt, a cap that is too small
	@.ci/setup.sh demo
	@.ci/demo.sh

test: ## The whole suite, doc tests too
	@.ci/setup.sh build
	@.ci/test.sh

clients: ## Real clients through labproxy: Claude Code, the Python and TypeScript SDKs
	@.ci/setup.sh clients
	@.ci/clients.sh

check: ## Format, lints, documentation
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --no-deps --document-private-items

soak: ## The long runs: 1,000 kills, 50 seeds, the fuzz targets for ten minutes each
	@.ci/setup.sh build
	@.ci/soak.sh

bench: ## Speed beside a minimal proxy, nginx and LiteLLM's proxy
	@.ci/setup.sh bench
	cargo bench --bench proxy

bench-tunnel: ## Speed of the tunnel beside bare ssh and socat, as root
	@.ci/setup.sh bench-tunnel
	cargo bench --bench tunnel

bench-mirror: ## Speed of the mirror beside rsync over the same ssh server, as root
	@.ci/setup.sh bench-mirror
	cargo bench --bench mirror

bench-session: ## How long a session of 20,000 files takes, beside rsync, as root
	@.ci/setup.sh bench-session
	cargo bench --bench session

release: ## An optimised binary with completions and man page in target/dist
	cargo build --release
	@.ci/dist.sh
