# Sourced by the other scripts: makes the environment they run in, and keeps it true to the checkout.
#
# Sets `bin`, the folder of its programs. Knows three variables:
#   COPLAY_VENV   where the environment stands (default: .venv in the checkout)
#   PYTHON        the interpreter it is made from, 3.11 or newer (default: python3)
#   COPLAY_TORCH  "any" accepts a CUDA build of torch (default: cpu)
# shellcheck shell=bash

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
venv="${COPLAY_VENV:-$root/.venv}"
bin="$venv/bin"
export HF_HUB_OFFLINE=1 PYTHONNOUSERSITE=1
unset PYTHONPATH # the tests are about the installed package, and nothing else may answer to its name

fail() {
    echo "$1" >&2
    exit 1
}

# One number for the contents and names of files.
digest() {
    "$bin/python" -c '
import hashlib, pathlib, sys
total = hashlib.sha256()
for name in sorted(sys.argv[1:]):
    total.update(f"{name} {hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest()}\n".encode())
print(total.hexdigest())' "$@"
}

sources() {
    find agents games rollout_tree scripts training -type f ! -path '*/__pycache__/*' -print0 | sort -z
    printf '%s\0' pyproject.toml README.md LICENSE
}

# The checkout root is the package: what an earlier build left in build/ would go into the next wheel.
install() {
    rm -rf build coplay.egg-info
    "$bin/pip" install -qq --no-build-isolation "$@"
    rm -rf build coplay.egg-info
}

make_environment() {
    echo "Setting up ${venv#"$root/"} (about 90 seconds and 1.8 GB the first time) ..."
    "$bin/pip" install -qq -c constraints.txt torch numpy setuptools
    if [[ "${COPLAY_TORCH:-cpu}" != any ]]; then
        local cuda
        cuda="$("$bin/python" -c 'import torch; print(torch.version.cuda or "")')"
        [[ -z "$cuda" ]] || fail "torch in ${venv#"$root/"} is built for CUDA $cuda, expected a CPU build: install \
one from PyTorch's CPU index with $bin/pip, or set COPLAY_TORCH=any to keep this one."
    fi
    install -c constraints.txt ".[dev,gguf]"
}

if [[ ! -x "$bin/python" ]]; then
    "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "${PYTHON:-python3} is older than 3.11: set PYTHON to a newer interpreter."
    "${PYTHON:-python3}" -m venv "$venv"
fi

required="$(digest constraints.txt pyproject.toml)"
source_files=()
while IFS= read -r -d '' file; do source_files+=("$file"); done < <(sources)
current="$(digest "${source_files[@]}")"
if [[ "$(cat "$venv/coplay-required" 2>/dev/null)" != "$required" ]]; then
    rm -f "$venv/coplay-required"
    make_environment
    echo "$required" > "$venv/coplay-required"
    echo "$current" > "$venv/coplay-sources"
elif [[ "$(cat "$venv/coplay-sources" 2>/dev/null)" != "$current" ]]; then
    rm -f "$venv/coplay-sources"
    install --no-deps --force-reinstall .
    echo "$current" > "$venv/coplay-sources"
fi
