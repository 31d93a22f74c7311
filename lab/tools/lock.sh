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

compile lab/requirements/plane.in requirements.txt
for each in build emulator docs; do
  compile "lab/requirements/$each.in" "lab/requirements/$each.txt"
done
# One version of a package everywhere: what ships is what is tested.
compile lambdas/requirements.in lambdas/requirements.txt --constraint requirements.txt
compile lab/examples/nats/requirements.in lab/examples/nats/requirements.txt --constraint requirements.txt
# Where a package comes from is said by each machine's own settings.
.venv/bin/npm install --package-lock-only --omit-lockfile-registry-resolved --no-fund --no-audit
