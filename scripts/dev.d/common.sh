# shellcheck shell=bash
# Messages shared by the subcommands of ./dev.

note() { printf '\n== %s\n' "$*" >&2; }

die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

die_usage() {
  printf 'dev: %s\n' "$*" >&2
  exit 2
}
