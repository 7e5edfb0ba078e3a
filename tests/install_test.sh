#!/bin/bash
# Installs into an empty folder and runs the installed program with an empty environment.
set -euo pipefail
: "${AUTOPAR_BUILD:?}"
meson=${MESON:-meson}
[ -z "${MESON:-}" ] && [ -x /usr/bin/meson ] && meson=/usr/bin/meson
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
check() { "$@" || { echo "failed: $*"; exit 1; }; }

"$meson" install -C "$AUTOPAR_BUILD" --no-rebuild --destdir "$stage" >"$stage/log" || { cat "$stage/log"; exit 1; }
autopar=$(find "$stage" -path '*/bin/autopar' -type f)
prefix=${autopar%/bin/autopar}
check test -x "$autopar"
version=$(cd / && env -i "$autopar" --version)
echo "$version"
check grep -q '[0-9]\.[0-9]' <<<"$version"
check test -f "$prefix/share/man/man1/autopar.1"
for header in "$AUTOPAR_SOURCE"/include/autopar/*.hpp; do
  check cmp "$header" "$prefix/include/autopar/${header##*/}"
done
# Nothing of the ONNX sources or of protobuf is installed, and ONNX Runtime is opened, not linked.
check test -z "$(find "$stage" -name '*onnx_pb*' -o -name '*.a' -o -name '*.proto')"
check test -z "$(ldd "$autopar" | grep -E 'onnxruntime|not found')"
# ONNX Runtime is found where the program looks for it first.
library=$(find "$stage" -path '*/autopar/libonnxruntime.so.1')
check test -s "$library"
