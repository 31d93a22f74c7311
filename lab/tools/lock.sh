#!/usr/bin/env bash
# Regenerates every lock file from its source. UPGRADE=1 takes the newest versions that the sources allow.
set -euo pipefail
cd "$(dirname "$0")/../.."

compile() { # source, target, further options
  local source=$1 target=$2
  shift 2
  .venv/bin/uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-annotate \
    --no-emit-index-url --custom-compile-command "make lock" ${UPGRADE:+--upgrade} \
    "$@" --output-file "$target" "$source"
}

compile requirements.in requirements.txt
compile requirements/build.in requirements/build.txt
compile requirements/emulator.in requirements/emulator.txt
compile docs/requirements.in docs/requirements.txt
# One version of a package everywhere: what ships is what is tested.
compile lambdas/requirements.in lambdas/requirements.txt --constraint requirements.txt
compile plugins/nats/requirements.in plugins/nats/requirements.txt --constraint requirements.txt
.venv/bin/npm install --package-lock-only
