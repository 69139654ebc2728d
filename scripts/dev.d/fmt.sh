# shellcheck shell=bash
# Formatting.

cpp_files() { git ls-files --cached --others --exclude-standard -- '*.cc' '*.h'; }

cmd_fmt() {
  local tool
  tool=$(command -v clang-format-14 || command -v clang-format) || die "clang-format is missing"
  case ${1:-} in
    --check) cpp_files | xargs -r -P "$JOBS" -n 16 "$tool" --dry-run -Werror ;;
    "") cpp_files | xargs -r -P "$JOBS" -n 16 "$tool" -i ;;
    *) die_usage "fmt takes --check or nothing" ;;
  esac
}
