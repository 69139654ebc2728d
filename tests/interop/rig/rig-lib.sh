# Shared by guest-up, guest-exec and guest-down (bash, sourced).
RIG_DIR=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
RIG_NETNS=${RIG_NETNS:-fv-rig}
RIG_CACHE=${RIG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/farverbs-interop}
rig_paths() { STATE=${RIG_STATE:-/run/farverbs-interop}/$RIG_NETNS; }
# True if the process whose pid is in file $1 is (still) the QEMU that we started.
rig_alive() {
  local p; p=$(cat "$1" 2>/dev/null) || return 1
  [ -n "$p" ] && tr '\0' ' ' < "/proc/$p/cmdline" 2>/dev/null | grep -q "qemu-system.*$(dirname "$1")"
}
rig_stop() {  # $1: state folder of one guest
  local p i; rig_alive "$1/pid" || { rm -f "$1/pid"; return 0; }
  p=$(cat "$1/pid"); kill -TERM "$p" 2>/dev/null
  for ((i = 0; i < 50; i++)); do rig_alive "$1/pid" || break; sleep 0.1; done
  rig_alive "$1/pid" && kill -KILL "$p" 2>/dev/null
  rm -f "$1/pid"
}
