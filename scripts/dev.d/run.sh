# shellcheck shell=bash
# Running what the release build made: the simulator, the benchmarks, the demo.

# release_binary NAME: prints its path, or fails when this source tree has none.
release_binary() {
  local path
  path=$(find build/release -name "$1" -type f -executable | head -n 1)
  [[ -n $path ]] && printf '%s\n' "$path"
}

cmd_sim() {
  build release
  local binary
  binary=$(release_binary farverbs_sim) || die "this tree has no simulator"
  "$binary" "$@"
}

cmd_bench() {
  build release
  [[ -x bench/run ]] || die "this tree has no bench/run"
  bench/run "$@"
}

cmd_demo() {
  build release farverbs
  build/release/bin/farverbs demo "$@"
}
