#!/usr/bin/env bash
# install_test.sh BUILD_DIRECTORY: installs a build into a temporary prefix, then builds and runs a
# small program against it, once with pkg-config and once with find_package.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/farverbs" --version

pc=$(find "$work/prefix" -name farverbs.pc)
export PKG_CONFIG_PATH=${pc%/*}
# shellcheck disable=SC2046
c++ $(pkg-config --cflags farverbs) "$here/consumer.cc" -o "$work/by-pkg-config" \
  $(pkg-config --libs farverbs)
"$work/by-pkg-config"

cmake -G Ninja -S "$here" -B "$work/by-cmake" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/by-cmake" >/dev/null
"$work/by-cmake/consumer"
