# shellcheck shell=bash
# Configuring and building a preset.

check_preset() {
  case $1 in
    dev | release | tsan | fuzz) ;;
    *) die_usage "unknown preset '$1'; presets are dev, release, tsan and fuzz" ;;
  esac
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  check_preset "$preset"
  note "build $preset"
  local log=build/$preset/configure.log
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    die "configuring $preset failed"
  fi
  ninja -C "build/$preset" -j "$JOBS" "$@" >&2
}

cmd_build() { build "${1:-release}" "${@:2}"; }

cmd_clean() { rm -rf "$FARVERBS_ROOT/build"; }
