#!/usr/bin/env bash
# Check everything: bash scripts/test.sh [PYTEST ARGUMENT ...]
# Leaves out the tests marked slow, unless COPLAY_TESTS=all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

if git rev-parse --git-dir > /dev/null 2>&1; then bash scripts/check_files.sh; fi
"$bin/ruff" check --quiet .
"$bin/ruff" format --quiet --check .
"$bin/mypy"

# The embedded model is too small to gain from threads, and figures compare only at one thread count.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
marks="not slow"
if [[ "${COPLAY_TESTS:-}" == all ]]; then marks=""; fi
# A process for each core shares them; the few tests of some files start sooner in one.
processes=(--numprocesses auto --maxprocesses 8 --dist worksteal)
for argument in "$@"; do
    if [[ -e "${argument%%::*}" ]]; then processes=(); fi
done
"$bin/pytest" -m "$marks" "${processes[@]}" "$@"
