# shellcheck shell=bash
# Stock programs on the drop-in libraries against a kernel's own soft RDMA, in a guest.

cmd_interop() {
  build release
  [[ $(id -u) -eq 0 ]] || die "interop makes a namespace, taps and a guest: run it as root"
  if ! command -v tshark >/dev/null; then
    note "tshark is not installed: captures are kept, but not looked at"
  fi
  if [[ ${1:-} == --race ]]; then
    shift
    tests/interop/rxe_race.py "$@"
  else
    tests/interop/interop.py "$@"
  fi
}
