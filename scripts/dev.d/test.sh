# shellcheck shell=bash
# Running tests and counting what they did.

# A prefix that fixes the address layout where the kernel allows: the sanitizers of GCC 12 and clang
# 14 stop at start, now and then, on kernels with much randomness (vm.mmap_rnd_bits of 32).
fixed_layout() { if setarch -R true 2>/dev/null; then printf 'setarch -R'; fi; }

# run_ctest PRESET [ctest arguments]: runs a built preset's tests. Results are left for count_results.
run_ctest() {
  local preset=$1
  shift
  note "test $preset"
  rm -rf "build/$preset/test-results"
  mkdir -p "build/$preset/test-results"
  # shellcheck disable=SC2046
  $(fixed_layout) ctest --test-dir "build/$preset" -j "$JOBS" --output-on-failure --no-tests=error \
    --output-junit "$FARVERBS_ROOT/build/$preset/test-results/ctest.junit" "$@" >&2
}

# count_results [--step NAME=OUTCOME]... PRESET...: names the skipped and failed tests and ends with
# the line of counts. A step is what is no test but passes or fails all the same.
count_results() {
  local arguments=()
  while [[ ${1:-} == --step ]]; do
    arguments+=("$1" "$2")
    shift 2
  done
  local preset
  for preset in "$@"; do arguments+=("build/$preset/test-results"); done
  python3 scripts/dev.d/counts.py "${arguments[@]}"
}

cmd_test() {
  local arguments=() status=0
  [[ $# -le 1 ]] || die_usage "test takes one filter at most"
  if [[ $# -eq 1 ]]; then arguments=(-R "$1" --no-tests=ignore); fi
  build dev
  run_ctest dev "${arguments[@]}" || status=1
  build release
  run_ctest release "${arguments[@]}" || status=1
  count_results dev release || status=1
  return $status
}
