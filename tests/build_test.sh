#!/bin/bash
# What scripts/build makes by default: what is installed, and nothing that only tests need.
set -euo pipefail
: "${AUTOPAR_BUILD:?}" "${AUTOPAR_SOURCE:?}"
[ "$AUTOPAR_BUILD" = "$AUTOPAR_SOURCE/build" ] || { echo "scripts/build knows no other build folder"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ninja=$(command -v ninja)

# In place of ninja: writes down what it would have to build, and answers questions.
cat >"$folder/ninja" <<END
#!/bin/bash
case " \$* " in
  *" --quiet "*) printf '%s\n' "\$@" >"$folder/asked" ;;
  *) exec "$ninja" "\$@" ;;
esac
END
chmod +x "$folder/ninja"
PATH=$folder:$PATH "$AUTOPAR_SOURCE/scripts/build"

targets=$(grep -v -e '^-' -e "^$AUTOPAR_BUILD\$" "$folder/asked" || true)
grep -qx src/autopar <<<"$targets" || { echo "the program is not among: $targets"; exit 1; }
# shellcheck disable=SC2086  # one word per target
if "$ninja" -C "$AUTOPAR_BUILD" -t inputs $targets | grep -E '^(\.\./)?tests/|_asan|_tsan'; then
  echo "only tests need these"
  exit 1
fi
