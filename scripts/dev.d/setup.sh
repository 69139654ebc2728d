# shellcheck shell=bash
# Packages: which are missing, and installing them.

required_packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$FARVERBS_ROOT/scripts/dev.d/packages.txt"; }

# Prints the required packages that dpkg does not call installed. One dpkg-query, some 20 ms.
missing_packages() {
  local required installed
  required=$(required_packages | sort)
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $required 2>/dev/null |
    sed -n 's/^installed //p' | sort -u) || true
  comm -23 <(printf '%s\n' "$required") <(printf '%s\n' "$installed")
}

ensure_setup() {
  if [[ -n ${FARVERBS_SKIP_SETUP:-} ]]; then return; fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    printf 'dev: this is not a Debian system. Install what these Debian packages hold and set\n' >&2
    printf 'FARVERBS_SKIP_SETUP=1:\n' >&2
    required_packages | paste -sd' ' >&2
    exit 2
  fi
  local missing
  missing=$(missing_packages | paste -sd' ')
  if [[ -z $missing ]]; then return; fi
  if [[ $(id -u) -ne 0 ]]; then
    printf 'dev: packages are missing. Run this, then try again:\n' >&2
    printf '  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s\n' "$missing" >&2
    exit 2
  fi
  note "installing: $missing"
  export DEBIAN_FRONTEND=noninteractive
  # To stderr, since a command's own output may be read by a program. A failed update is not yet a
  # failure: the lists at hand may do.
  apt-get update -q >&2 || printf 'dev: apt-get update failed; trying with the lists at hand\n' >&2
  # shellcheck disable=SC2086
  apt-get install -q -y --no-install-recommends $missing </dev/null >&2 ||
    die "apt-get could not install: $missing"
}

cmd_setup() {
  [[ $# -eq 0 ]] || die_usage "setup takes no arguments"
  ensure_setup
  printf 'Everything ./dev needs is installed.\n'
}
