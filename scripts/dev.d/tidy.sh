# shellcheck shell=bash
# The lints: the project's own, and clang-tidy.

# Files that differ from what clang-tidy saw last: uncommitted ones and those of the last commit.
# FARVERBS_TIDY_BASE names another commit to compare with.
changed_sources() {
  local base=${FARVERBS_TIDY_BASE:-HEAD~1}
  git rev-parse -q --verify "$base^{commit}" >/dev/null || base=HEAD
  { git diff --name-only --diff-filter=d "$base" -- 'src/*.cc' 2>/dev/null
    git ls-files --others --exclude-standard -- 'src/*.cc'; } | sort -u
}

clang_tidy() {
  local files
  files=$(changed_sources | grep -v '_fuzz\.cc$' || true)
  if [[ -z $files ]]; then
    note "clang-tidy: no changed files"
    return 0
  fi
  cmake --preset release >/dev/null || return 1
  note "clang-tidy on $(wc -w <<<"$files") files"
  # GCC's flags that clang does not know are no finding.
  xargs -r -P "$JOBS" -n 1 clang-tidy-14 --quiet -p build/release \
    --extra-arg=-Wno-unknown-warning-option <<<"$files"
}

cmd_tidy() {
  local status=0
  python3 tests/lint/lint.py || status=1
  case ${1:-} in
    --clang) clang_tidy || status=1 ;;
    "") ;;
    *) die_usage "tidy takes --clang or nothing" ;;
  esac
  return $status
}
