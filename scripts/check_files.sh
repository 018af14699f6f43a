#!/usr/bin/env bash
# Check that text files end with one newline and no file is large: bash scripts/check_files.sh [FILE ...]
# Without arguments: every file git knows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=500000
files=("$@")
if [[ $# -eq 0 ]]; then
    while IFS= read -r -d '' file; do files+=("$file"); done < <(git ls-files -z)
fi

faults=0
for file in ${files[@]+"${files[@]}"}; do
    [[ -f "$file" ]] || continue
    size="$(wc -c < "$file")"
    if ((size > limit)); then
        echo "$file has $size bytes, expected at most $limit: leave it out, or make it smaller" >&2
        faults=$((faults + 1))
    fi
    if ((size > 0)) && grep -qI . "$file"; then
        if [[ -n "$(tail -c 1 "$file")" ]]; then
            echo "$file does not end with a newline" >&2
            faults=$((faults + 1))
        elif ((size > 1)) && [[ -z "$(tail -c 2 "$file")" ]]; then
            echo "$file ends with an empty line" >&2
            faults=$((faults + 1))
        fi
    fi
done
((faults == 0))
