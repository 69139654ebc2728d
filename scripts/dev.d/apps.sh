# shellcheck shell=bash
# Stock RDMA applications on the drop-in libraries.

# Of Debian, unmodified; installed by `./dev apps` when root, never by the other commands.
application_packages() {
  printf '%s\n' ibverbs-utils rdmacm-utils perftest qperf fio ucx-utils libfabric-bin openmpi-bin \
    libopenmpi-dev qemu-system-x86 python3-pyverbs librdmacm1
}

cmd_apps() {
  build release
  local missing
  # shellcheck disable=SC2046
  missing=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $(application_packages) 2>/dev/null |
    sed -n 's/^installed //p' | sort | comm -13 - <(application_packages | sort) | paste -sd' ')
  if [[ -n $missing && $(id -u) -eq 0 ]]; then
    note "installing the applications: $missing"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing \
      </dev/null >&2 || printf 'dev: could not install all; rows without their program are not run\n' >&2
  fi
  tests/apps/apps.py "$@"
}
