#!/bin/bash
# Checks that the C++ files are formatted as .clang-format says. Needs clang-format 14: other versions format differently.
# scripts/setup puts it into the Python environment of the tests.
set -euo pipefail
formatter=
for candidate in "${AUTOPAR_SOURCE:?}/.deps/venv/bin/clang-format" clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
[ -n "$formatter" ] || { echo "clang-format 14 is not installed"; exit 77; }
cd "$AUTOPAR_SOURCE"
find src include tests bench -name '*.hpp' -o -name '*.cpp' | sort | xargs "$formatter" --dry-run -Werror --style=file
