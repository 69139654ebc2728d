# shellcheck shell=bash
# Fuzzers. The corpus that grows is kept in build/fuzz/corpus/<name>; seeds that are worth keeping
# are in tests/corpus/<name>.

fuzz_one() {
  local binary=$1 seconds=$2
  local name corpus findings
  name=$(basename "$binary")
  corpus=build/fuzz/corpus/$name
  findings=build/fuzz/findings/$name
  mkdir -p "$corpus" "$findings"
  local directories=("$corpus")
  if [[ -d tests/corpus/$name ]]; then directories+=("tests/corpus/$name"); fi
  note "fuzz $name for $seconds s"
  # shellcheck disable=SC2046
  if ! $(fixed_layout) "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/" "${directories[@]}" >"build/fuzz/$name.log" 2>&1; then
    tail -n 60 "build/fuzz/$name.log" >&2
    printf 'dev: %s found something; replay it with\n  %s FILE, FILE being one of %s/\n' \
      "$name" "$binary" "$findings" >&2
    return 1
  fi
  grep -E '^stat::(number_of_executed_units|average_exec_per_sec)' "build/fuzz/$name.log" >&2 || true
}

# run_fuzzers SECONDS NAME: JOBS at a time.
run_fuzzers() {
  local seconds=$1 wanted=$2
  local binary status=0 running=0 found=0
  while IFS= read -r binary; do
    found=1
    if ((running >= JOBS)); then
      wait -n || status=1
      running=$((running - 1))
    fi
    fuzz_one "$binary" "$seconds" &
    running=$((running + 1))
  done < <(find build/fuzz -name "*${wanted}*_fuzz" -type f -executable | sort)
  while ((running > 0)); do
    wait -n || status=1
    running=$((running - 1))
  done
  if ((found == 0)); then
    [[ -z $wanted ]] || die_usage "no fuzzer's name contains '$wanted'"
    printf 'dev: there are no fuzzers\n' >&2
  fi
  return $status
}

cmd_fuzz() {
  local seconds=60
  if [[ ${1:-} == -t ]]; then
    [[ ${2:-} =~ ^[0-9]+$ ]] || die_usage "fuzz -t takes seconds"
    seconds=$2
    shift 2
  fi
  [[ $# -le 1 ]] || die_usage "fuzz takes one name at most"
  build fuzz fuzzers
  run_fuzzers "$seconds" "${1:-}"
}
