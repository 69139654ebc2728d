"""Two network namespaces joined by veth, and a tmpfs, that exist only as long as this process.

The namespaces have no names: they are descriptors of this process, so that nothing is left behind
whatever ends it, kill -9 included. Mounts are made in a mount namespace of our own for the same
reason.
"""

import ctypes
import os
import subprocess
import sys

from .outcome import Refused

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
PR_SET_PDEATHSIG = 1
SIGKILL = 9
MNT_DETACH = 2
INSIDE = "FARVERBS_BENCH_INSIDE"

MTU = 1500

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def set_namespace(fd):
    _check(_libc.setns(fd, CLONE_NEWNET), "setns")


def die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def mount(kind, target, flags=0, options=""):
    _check(_libc.mount(b"none", os.fsencode(target), kind.encode() if kind else None,
                       ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def become_able(argv):
    """Returns if this process may make namespaces; starts it again inside a user namespace if it
    may not. Refused: neither works."""
    if os.geteuid() == 0:
        return
    if os.environ.get(INSIDE):
        raise Refused("still not root inside a user namespace")
    command = ["unshare", "-Urnm"]
    try:
        able = subprocess.run(command + ["true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError as error:
        raise Refused("unshare is missing: apt-get install util-linux") from error
    if not able:
        raise Refused(
            "the benchmark makes two network namespaces. Run it as root, or let users make them:\n"
            "  sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000\n"
            "  sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (where there is AppArmor)")
    os.environ[INSIDE] = "1"
    os.execvp(command[0], command + [sys.executable, *argv])


def place(where, available):
    """The sets of processors for clients and servers, of those available: `two` different ones,
    `one` for both, or None for any (`free`, and `two` where there is but one)."""
    ordered = sorted(available)
    if where == "one":
        return {ordered[0]}, {ordered[0]}
    if where == "two" and len(ordered) > 1:
        return {ordered[0]}, {ordered[1]}
    return None, None


class End:
    """One of the two namespaces: a descriptor, and its addresses on the two paths."""

    def __init__(self, fd, number):
        self.fd = fd
        # As the kernel has it: the segmentation offloads of veth hand on super-packets.
        self.address = f"10.77.0.{number}"
        # A device without them: every packet is cut to size before it leaves.
        self.split_address = f"10.77.1.{number}"

    def run(self, *command):
        """A short command in this namespace."""
        done = subprocess.run(command, preexec_fn=lambda: set_namespace(self.fd),
                              pass_fds=(self.fd,), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


class Network:
    """Namespaces `near` (clients) and `far` (servers), joined by the veth pairs wire0 and split0."""

    def __init__(self, cpus=(None, None)):
        self.cpus = cpus  # of clients and of servers; None: any
        try:
            unshare(CLONE_NEWNS)
            mount(None, "/", MS_REC | MS_PRIVATE)
            self.near, self.far = self._new_end(1), self._new_end(2)
            self._join()
        except (OSError, FileNotFoundError) as error:
            raise Refused(
                f"cannot make network namespaces ({error}). Run as root on a kernel with veth and "
                "network namespaces; a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN. The "
                "programs needed are those of scripts/dev.d/packages.txt (./dev setup)") from error

    @staticmethod
    def _new_end(number):
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            unshare(CLONE_NEWNET)
            fd = os.open("/proc/self/ns/net", os.O_RDONLY)
        finally:
            set_namespace(home)
            os.close(home)
        return End(fd, number)

    def _join(self):
        near, far = self.near, self.far
        os.set_inheritable(far.fd, True)
        subnet = 24
        for name, of in (("wire0", lambda end: end.address),
                         ("split0", lambda end: end.split_address)):
            subprocess.run(
                ["ip", "link", "add", name, "mtu", str(MTU), "type", "veth", "peer", "name", name,
                 "mtu", str(MTU), "netns", f"/proc/self/fd/{far.fd}"],
                preexec_fn=lambda: set_namespace(near.fd), pass_fds=(near.fd, far.fd), check=True,
                capture_output=True)
            for end in (near, far):
                end.run("ip", "address", "add", f"{of(end)}/{subnet}", "dev", name)
                end.run("ip", "link", "set", name, "up")
        for end in (near, far):
            end.run("ip", "link", "set", "lo", "up")

    def split_segments(self):
        """Turns split0 into a device that takes no super-packets. OSError: no ethtool, or the
        device refuses."""
        for end in (self.near, self.far):
            # Software segmentation stays on, as it does with a card that lacks these two.
            end.run("ethtool", "-K", "split0", "tso", "off", "tx-udp-segmentation", "off")


def mount_tmpfs(directory, size):
    """A tmpfs of `size` bytes over an empty directory, seen by this process and its children."""
    mount("tmpfs", directory, 0, f"size={size},mode=700")


def available_memory(meminfo=None):
    """Bytes that programs could still take."""
    if meminfo is None:
        with open("/proc/meminfo", encoding="ascii") as file:
            meminfo = file.read()
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def unmount_below(directory):
    """What mount_tmpfs made beneath a directory, so that it can be removed."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        points = [line.split()[1] for line in file]
    for point in reversed(points):
        if point.startswith(directory + "/"):
            _check(_libc.umount2(os.fsencode(point), MNT_DETACH), f"unmount {point}")
