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

# clang_tidy [LIMIT]: a file takes some 10 s, so CI looks at LIMIT of them at most, and says so.
clang_tidy() {
  local limit=${1:-1000} files count
  files=$(changed_sources | grep -vE '_(test|fuzz|bench)\.cc$' || true)
  if [[ -z $files ]]; then
    note "clang-tidy: no changed files"
    return 0
  fi
  count=$(wc -l <<<"$files")
  if ((count > limit)); then
    note "clang-tidy: $limit of $count changed files; ./dev tidy --clang looks at all"
    files=$(head -n "$limit" <<<"$files")
  else
    note "clang-tidy on $count files"
  fi
  cmake --preset release >/dev/null || return 1
  xargs -r -P "$JOBS" -n 1 clang-tidy-14 --quiet -p build/release \
    --extra-arg=-Wno-unknown-warning-option <<<"$files" 2> >(grep -v 'warnings generated' >&2)
}

cmd_tidy() {
  local status=0
  python3 tests/lint/lint.py || status=1
  case ${1:-} in
    --clang) clang_tidy "${2:-}" || status=1 ;;
    "") ;;
    *) die_usage "tidy takes --clang [LIMIT] or nothing" ;;
  esac
  return $status
}
