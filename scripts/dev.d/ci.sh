# shellcheck shell=bash
# Everything, in the order that fails soonest, each step timed. A failed step does not stop the
# others, so that one run tells all.

CI_STEPS=()
CI_OUTCOMES=()

# step NAME COMMAND...: runs it, remembers how long it took and whether it failed.
step() {
  local name=$1 began=$SECONDS outcome=ok
  shift
  note "step $name"
  # A subshell, so that a die inside ends the step only.
  ("$@") || outcome=FAILED
  CI_OUTCOMES+=(--step "$name=$outcome")
  CI_STEPS+=("$(printf '%-28s %-6s %4d s' "$name" "$outcome" $((SECONDS - began)))")
}

ci_dev() { build dev && run_ctest dev; }

# The packages of packages.txt are there, so no test may leave out what needs them.
ci_release() { build release && FARVERBS_REQUIRE_STOCK=1 run_ctest release; }

# The rooms with threads; ThreadSanitizer has nothing to say about the others.
ci_tsan() {
  local room targets=() names=()
  for room in base model io engine verbs; do
    if [[ -n $(find "src/farverbs/$room" -name '*_test.cc' -print -quit 2>/dev/null) ]]; then
      targets+=("${room}_test")
      names+=("$room")
    fi
  done
  build tsan "${targets[@]}" && run_ctest tsan -R "^($(IFS='|' && printf '%s' "${names[*]}"))\$"
}

ci_fuzz() { build fuzz fuzzers && run_fuzzers "${FARVERBS_FUZZ_SECONDS:-20}" ""; }

ci_sim() { "$(release_binary farverbs_sim)" --seeds "${FARVERBS_SIM_SEEDS:-10000}"; }

ci_bench() { bench/run --quick; }

ci_demo() { build/release/bin/farverbs demo; }

cmd_ci() {
  [[ $# -eq 0 ]] || die_usage "ci takes no arguments"
  local began=$SECONDS
  # A run before this one must not count.
  rm -rf build/*/test-results
  step "format" cmd_fmt --check
  step "lint and clang-tidy" cmd_tidy --clang "${FARVERBS_TIDY_FILES:-12}"
  step "dev: build and test" ci_dev
  step "release: build and test" ci_release
  step "tsan: build and test" ci_tsan
  step "fuzz: smoke" ci_fuzz
  if release_binary farverbs_sim >/dev/null; then step "sim: seeds" ci_sim; fi
  if [[ -x bench/run ]]; then step "bench: quick" ci_bench; fi
  if build/release/bin/farverbs demo --help >/dev/null 2>&1; then step "demo" ci_demo; fi

  note "steps"
  printf '%s\n' "${CI_STEPS[@]}" >&2
  printf '%-28s %-6s %4d s\n' "all" "" $((SECONDS - began)) >&2
  count_results "${CI_OUTCOMES[@]}" dev release tsan
}
