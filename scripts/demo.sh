#!/usr/bin/env bash
# Watch two agents learn to deal with each other: bash scripts/demo.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

exec "$bin/python" -P -m coplay.scripts.demo "$@"
