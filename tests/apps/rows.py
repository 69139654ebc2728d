"""The stock applications that must run unmodified: one row each.

In commands, {self} is the server's address, {peer} what the client calls it by, {dev} the RDMA
device at that end. A row passes when both ends end with status 0 (or as `server_status` says), in
time, and the client's output (and the server's) holds what is asked.
"""

from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Row:
    name: str
    server: str
    client: Optional[str] = None  # None: one command does it all
    expect: tuple = ()  # regular expressions the client's output must hold
    server_expect: tuple = ()
    server_status: Optional[int] = 0  # None: it is ended once the client is done
    ready: str = "delay"  # "tcp:PORT", or "delay": half a second
    packages: tuple = ()
    places: tuple = ("loopback", "namespaces")
    seconds: int = 60
    group: str = ""
    quick: bool = False  # one of the few that CI runs
    needs: tuple = field(default=())  # programs that must be there
    # What a row that cannot pass yet lacks; it must fail, or this line must go.
    known: str = ""


def pingpongs():
    base = dict(group="pingpong", ready="tcp:18515", packages=("ibverbs-utils",))
    result = r"bytes in .* seconds"
    flags = [
        ("rc", "-g 0", True),
        ("rc events", "-g 0 -e", True),
        ("rc timestamps", "-g 0 -t", False),
        ("rc new send", "-g 0 -N", False),
        ("rc large", "-g 0 -s 1048576 -n 200", False),
        ("rc check", "-g 0 -c", False),
        ("uc", "-g 0", False),
        ("ud", "-g 0 -s 1000", True),
        ("srq", "-g 0", True),
        ("srq 16 QPs events", "-g 0 -e -q 16", False),
        ("xsrq", "-g 0", False),
    ]
    for name, arguments, quick in flags:
        program = f"ibv_{name.split()[0]}_pingpong -d {{dev}} {arguments}"
        known = "XRC is not offered" if name == "xsrq" else ""
        yield Row(f"ibv_pingpong {name}", program, program + " {peer}", (result,), quick=quick,
                  known=known, **base)


def perftest():
    base = dict(group="perftest", packages=("perftest",))
    result = r"\n ?#bytes[^\n]*\n +\d+ +\d+ "
    programs = []
    for operation in ("send", "write", "read", "atomic"):
        for kind in ("bw", "lat"):
            programs.append((f"ib_{operation}_{kind}", "-n 1000"))
    for operation in ("send", "write", "read", "atomic"):
        programs.append((f"ib_{operation}_bw", "-n 1000 -R"))
        programs.append((f"ib_{operation}_lat", "-n 1000 -R"))
    programs += [
        ("ib_send_bw", "-n 1000 -e"),
        ("ib_read_bw", "-n 1000 -e"),
        ("ib_send_lat", "-n 1000 -e"),
        ("ib_send_bw", "-n 1000 -c UD -s 1000"),
        ("ib_send_lat", "-n 1000 -c UD -s 64"),
        ("ib_send_bw", "-n 1000 -c UC"),
        ("ib_write_bw", "-n 1000 -c UC"),
        ("ib_write_lat", "-n 1000 -c UC"),
        ("ib_send_bw", "-n 1000 --use-srq -q 4"),
        ("ib_send_bw", "-a -n 100"),
        ("ib_write_bw", "-a -n 100"),
        ("ib_read_bw", "-a -n 100"),
        ("ib_write_lat", "-a -n 100"),
        ("ib_write_bw", "-D 3"),
        ("ib_send_bw", "-D 3"),
        ("ib_read_bw", "-D 3 -b"),
        ("ib_write_bw", "-n 1000 -b -q 4"),
        ("ib_send_bw", "-n 1000 -R -c UD -s 1000"),
    ]
    quick = {("ib_write_bw", "-n 1000"), ("ib_send_lat", "-n 1000"), ("ib_read_bw", "-n 1000 -R")}
    for program, arguments in programs:
        command = f"{program} -d {{dev}} -x 0 -p 18600 -F {arguments}"
        yield Row(f"{program} {arguments}", command, command + " {peer}", (result,),
                  ready="delay" if "-R" in arguments else "tcp:18600",
                  quick=(program, arguments) in quick, **base)


def connection_manager():
    base = dict(group="rdma_cm", packages=("rdmacm-utils",), seconds=120)
    yield Row("rping", "rping -s -a {self} -C 5 -v", "rping -c -a {peer} -C 5 -v",
              (r"ping data: rdma-ping-4",), quick=True, **base)
    yield Row("ucmatose", "ucmatose -b {self}", "ucmatose -s {peer}", (r"return status 0",),
              quick=True, **base)
    yield Row("ucmatose 50 connections", "ucmatose -b {self} -c 50", "ucmatose -s {peer} -c 50",
              (r"return status 0",), **base)
    yield Row("udaddy", "udaddy -b {self}", "udaddy -s {peer}", (r"return status 0",), quick=True,
              **base)
    yield Row("cmtime", "cmtime -b {self} -c 200", "cmtime -s {peer} -c 200", (r"disconnect",),
              server_status=None, **base)
    yield Row("rstream", "rstream -b {self}", "rstream -s {peer}", (r"\d+\.\d+",), **base)
    yield Row("rstream verify", "rstream -b {self} -T v", "rstream -s {peer} -T v", (r"\d+\.\d+",),
              **base)
    yield Row("riostream", "riostream -b {self}", "riostream -s {peer}", (r"\d+\.\d+",), **base)
    yield Row("rcopy", "rcopy", "rcopy {scratch}/from {peer}:{scratch}/to", (), server_status=None,
              **base)
    yield Row("udpong", "udpong -b {self}", "udpong -s {peer}", (r"\d+",), server_status=None,
              **base)
    yield Row("rdma_server", "rdma_server -s {self}", "rdma_client -s {peer}",
              (r"rdma_client: end 0",), **base)
    yield Row("rdma_xserver", "rdma_xserver -c r", "rdma_xclient -s {peer} -c r", (r"end 0",),
              **base)
    yield Row("mckey", "mckey -m 230.1.1.1 -b {self} -C 3",
              "mckey -m 230.1.1.1 -b {other} -C 3 -s", (r"return status 0",), **base)


def others():
    qperf = "rc_bw rc_lat rc_rdma_read_bw rc_rdma_write_bw ver_rc_fetch_add"
    yield Row("qperf", "qperf -lp 19765", f"qperf -lp 19765 -t 2 -cm 1 {{peer}} {qperf}",
              (r"rc_bw:\s+bw +=", r"rc_lat:\s+latency +=", r"ver_rc_fetch_add:"),
              server_status=None, ready="tcp:19765", packages=("qperf",), group="qperf")
    for verb in ("write", "read", "send"):
        client = ("fio --name=client --ioengine=rdma --hostname={peer} --port=18900 "
                  f"--verb={verb} --rw=write --bs=64k --size=16m --iodepth=16")
        yield Row(f"fio {verb}",
                  "fio --name=server --ioengine=rdma --port=18900 --rw=read --bs=64k --size=16m "
                  "--iodepth=16", client, (r"(WRITE|READ): bw=",), packages=("fio",), group="fio")
    ucx = "env UCX_NET_DEVICES={dev}:1 UCX_TLS=rc_verbs,ud_verbs,self ucx_perftest -p 13400"
    for test, arguments in (("tag_bw", "-s 1048576 -n 100"), ("tag_lat", "-s 8 -n 1000"),
                            ("ucp_put_bw", "-s 65536 -n 100"), ("ucp_get", "-s 65536 -n 100")):
        yield Row(f"ucx_perftest {test}", ucx, f"{ucx} {{peer}} -t {test} {arguments}",
                  (r"Final:",), ready="tcp:13400", packages=("ucx-utils",), group="ucx",
                  server_status=None)
    for provider, arguments in (("verbs;ofi_rxm", "-e rdm"), ("verbs", "-e msg")):
        command = f"fi_pingpong -p '{provider}' {arguments}"
        yield Row(f"fi_pingpong {provider}", command, command + " {peer}", (r"64k?|1m",),
                  ready="tcp:47592", packages=("libfabric-bin",), group="libfabric")


def open_mpi():
    base = dict(group="openmpi", packages=("openmpi-bin", "libopenmpi-dev"), needs=("mpicc",),
                seconds=120)
    run = ("mpirun --allow-run-as-root --oversubscribe -np 2 {mpi_hosts} --mca btl ^vader,openib,uct ")
    yield Row("Open MPI over UCX",
              run + "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any "
              "-x UCX_TLS=rc_verbs,ud_verbs,self -x UCX_NET_DEVICES={dev}:1 {mpi_program}",
              None, (r"mpi: all \d+ exchanges right",), **base)
    yield Row("Open MPI over libfabric",
              run + "--mca pml cm --mca mtl ofi "
              "--mca mtl_ofi_provider_include 'verbs;ofi_rxm' {mpi_program}",
              None, (r"mpi: all \d+ exchanges right",), **base)


def qemu():
    yield Row("QEMU migration", "{tests}/qemu_migration.py {self} target {scratch}",
              "{tests}/qemu_migration.py {peer} source {scratch}", (r"Migration status: completed",),
              packages=("qemu-system-x86",), needs=("qemu-system-x86_64",), group="qemu",
              ready="file:{scratch}/target-ready", seconds=120)


def of_our_choice():
    # rdma-core's own tests, as Debian ships them with pyverbs, and a TCP program over rsockets.
    yield Row("rdma-core's tests", "{tests}/rdma_core_tests.py --dev {dev} --gid 0", None,
              (r"rdma-core's tests: \d+ passed, 0 failed",), packages=("python3-pyverbs",),
              group="rdma-core", places=("loopback",), seconds=300)
    preload = "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so "
    yield Row("iperf3 over rsockets", preload + "iperf3 -s -1 -p 5999 -B {self}",
              preload + "iperf3 -c {peer} -p 5999 -t 2", (r"receiver",),
              packages=("librdmacm1", "iperf3"), group="rsockets")


def devices():
    base = dict(packages=("ibverbs-utils",), group="devices")
    yield Row("ibv_devices", "ibv_devices", None, (r"{dev}\s+[0-9a-f]{16}",), quick=True, **base)
    yield Row("ibv_devinfo", "ibv_devinfo -v -d {dev}", None,
              (r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet", r"GID\[ *0\]:.*RoCE v2"),
              quick=True, **base)


def rows():
    for table in (devices, pingpongs, perftest, connection_manager, others, open_mpi, qemu,
                  of_our_choice):
        yield from table()
