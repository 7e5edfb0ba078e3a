#!/bin/bash
# Installs into an empty folder and runs the installed program with an empty environment: a search and a run, by what is
# installed alone.
set -euo pipefail
: "${AUTOPAR_BUILD:?}" "${AUTOPAR_SOURCE:?}"
meson=${MESON:-meson}
[ -z "${MESON:-}" ] && [ -x /usr/bin/meson ] && meson=/usr/bin/meson
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
check() { "$@" || { echo "failed: $*"; exit 1; }; }

"$meson" install -C "$AUTOPAR_BUILD" --no-rebuild --destdir "$stage" >"$stage/log" || { cat "$stage/log"; exit 1; }
rm "$stage/log"
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

# Nothing that is installed knows where it was built, so that it finds its own files or none.
mapfile -t knowing < <(grep -rlF -e "$AUTOPAR_BUILD" -e "$AUTOPAR_SOURCE" "$stage")
check test "${knowing[*]}" = ""

# Started by a name on the path, by a link, and from another folder. The plan is made of an installed model.
mkdir "$stage/work"
ln -s "$autopar" "$stage/work/linked"
cd "$stage/work"
cp "$prefix/share/autopar/models/mlp.onnx" .
check env -i PATH="${autopar%/*}" autopar search mlp.onnx --cluster dgx-a100-1x8 -q
for started in autopar "$stage/work/linked"; do
  env -i PATH="${autopar%/*}" LD_DEBUG=libs "$started" run mlp.autopar >"$stage/output" 2>"$stage/libraries" || { cat "$stage/output"; exit 1; }
  check test "$(tail -n 1 "$stage/output")" = PASSED
  opened=$(sed -n 's/.*calling init: //p' "$stage/libraries" | grep libonnxruntime)
  echo "$started run: PASSED with $opened"
  check grep -q "^$prefix/lib" <<<"$opened"
done
