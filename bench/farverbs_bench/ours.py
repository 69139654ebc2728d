"""What is measured of Farverbs, with the programs that users have."""

import os
import shlex
import shutil
import signal
import tempfile

from . import isolation, process
from .context import GIB, MIB
from .outcome import Failed, Skipped
from .yardsticks import cold_bytes, figure, parse_json

PORT = 7471
SERVE_PORT = 7472
# Per queue pair, with one and with 10,000 of them.
ROUND_ROBIN_SIZE = 64 << 10
MANY = 10_000

LAB_BITS_PER_SECOND = 200e6
LAB_RTT_MS = 100
# A packet of a WRITE's middle beyond its payload: IPv4 20, UDP 8, BTH 12, ICRC 4; and what the lab
# counts on top for Ethernet: header 14, FCS 4, preamble 8, gap 12.
PACKET_OVERHEAD = 20 + 8 + 12 + 4
FRAME_OVERHEAD = 38


def payload_capacity(rate, path_mtu):
    """Bits of payload a second on a link of `rate` bit/s, with full packets of `path_mtu` bytes."""
    return rate * path_mtu / (path_mtu + PACKET_OVERHEAD + FRAME_OVERHEAD)


def bandwidth_figures(value, cpu_seconds=None):
    """Of `perf client --json`. CPU seconds of both processes, all of their lives, if given."""
    bits = figure(value, "bits_per_second")
    size = bits * figure(value, "seconds") / 8
    if size <= 0:
        raise Failed("farverbs perf moved nothing")
    figures = {"bits_per_second": bits, "bytes": size,
               "messages_per_second": figure(value, "messages_per_second"),
               "path_mtu": figure(value, "path_mtu"),
               "measured_cpu_seconds_per_gb": figure(value, "cpu", "seconds_per_gb"),
               "retransmitted_packets": figure(value, "retransmitted_packets", "client")
                                        + figure(value, "retransmitted_packets", "server")}
    if cpu_seconds is not None:
        figures["cpu_seconds"] = cpu_seconds
        figures["cpu_seconds_per_gb"] = cpu_seconds / size * 1e9
    return figures


def _perf(context, address, options):
    program = context.farverbs("perf")
    result, cpu = process.run_pair(
        context.network, [program, "perf", "server", "--once", "--bind", address],
        [program, "perf", "client", address, "--json", "--seconds", context.seconds,
         *options], PORT, context.limit)
    if result.exit_code != 0:
        raise Failed(f"farverbs perf: {result.why()}")
    return parse_json(result.out, "farverbs perf client"), cpu


def bandwidth(context, op, *options, size=MIB):
    value, _ = _perf(context, context.network.far.address,
                     ["--op", op, "--size", size, *options])
    return bandwidth_figures(value)


def write(context, split=False):
    """Without a warm-up, as iperf3 runs: what the processes cost and what they moved are of the
    same time."""
    far = context.network.far
    value, cpu = _perf(context, far.split_address if split else far.address,
                       ["--op", "write", "--size", MIB, "--warmup", 0])
    return bandwidth_figures(value, cpu)


def cold_write(context):
    size = cold_bytes(context)
    context.need_memory(2 * size + GIB // 2)
    return bandwidth(context, "write", "--region", size)


def small_writes(context):
    return bandwidth(context, "write", "--depth", 128, size=64)


def latency(context, op, *options):
    value, _ = _perf(context, context.network.far.address,
                     ["--op", op, "--mode", "latency", "--size", 64, *options])
    return {"p50_us": figure(value, "latency_us", "p50"),
            "p99_us": figure(value, "latency_us", "p99")}


def one_queue_pair(context):
    return bandwidth(context, "write", "--qps", 1, size=ROUND_ROBIN_SIZE)


def many_queue_pairs(context):
    """Connecting is over before the measurement begins; the warm-up is a turn of all of them."""
    context.need_memory(2 * GIB)
    return bandwidth(context, "write", "--qps", MANY, "--depth", 1, "--warmup", 1,
                     size=ROUND_ROBIN_SIZE)


def _make_file(path, size):
    block = os.urandom(16 * MIB)
    with open(path, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)


def _copy_places(context):
    """A file in the page cache, and an empty tmpfs."""
    size = GIB // 4 if context.quick else GIB
    context.need_memory(2 * size + GIB // 2)
    if shutil.disk_usage(context.directory).free < size + GIB // 8:
        raise Skipped(f"needs {size // MIB} MiB of room in {context.directory}")
    source = os.path.join(context.directory, "file")
    _make_file(source, size)
    target = os.path.join(context.directory, "tmpfs")
    os.mkdir(target)
    isolation.mount_tmpfs(target, size + GIB // 8)
    return source, target, size


def copy(context):
    program = context.farverbs("cp")
    source, target, size = context.once("copy places", lambda: _copy_places(context))
    with open(source, "rb") as file:  # a file that was written is not all in the cache for ever
        while file.read(8 * MIB):
            pass
    address = context.network.far.address
    placed = os.path.join(target, "copy")
    try:
        with process.Process([program, "serve", "--root", target, "--bind", address, "--port",
                              SERVE_PORT, "--insecure-listen"], context.network.far) as server:
            server.wait_for_port(SERVE_PORT)
            result = process.run(
                [program, "cp", "--json", source, f"farverbs://{address}:{SERVE_PORT}/copy"],
                context.limit, context.network.near)
            server.signal(signal.SIGTERM)
            served = server.wait(15)
        if os.path.getsize(placed) != size:
            raise Failed(f"farverbs cp left {os.path.getsize(placed)} of {size} bytes")
    except OSError as error:
        raise Failed(f"farverbs cp left no file: {error}") from error
    finally:
        for name in os.listdir(target):
            os.unlink(os.path.join(target, name))
    value = parse_json(result.out, "farverbs cp")
    return {"bits_per_second": figure(value, "bits_per_second"),
            "cpu_seconds_per_gb": (result.cpu_seconds + served.cpu_seconds) / size * 1e9}


def lab_figures(value):
    """Goodput after the ramp, beside what the link could carry."""
    return {"bits_per_second": figure(value, "bits_per_second"),
            "capacity": payload_capacity(LAB_BITS_PER_SECOND, figure(value, "path_mtu"))}


def lab(context):
    program = context.farverbs("lab")
    context.farverbs("perf")
    warmup, seconds = (1.5, 2) if context.quick else (3, 8)
    quoted = shlex.quote(program)
    with tempfile.NamedTemporaryFile() as out:
        server = f"exec {quoted} perf server --once >/dev/null"
        client = (f"sleep 1; exec {quoted} perf client \"$FARVERBS_LAB_PEER\" --op write --json "
                  f"--warmup {warmup} --seconds {seconds} >{shlex.quote(out.name)}")
        process.run([program, "lab", "run", "--rate", f"{LAB_BITS_PER_SECOND / 1e6:.0f}mbit",
                     "--rtt", f"{LAB_RTT_MS}ms", "--quiet", "--", server, client],
                    60 + warmup + seconds)
        text = out.read().decode(errors="replace")
    return lab_figures(parse_json(text, "farverbs perf client in the lab"))


def idle_memory(context):
    program = context.built("farverbs_qp_memory")
    count = 1000 if context.quick else MANY
    result = process.run([program, "--qps", count], context.limit, context.network.near)
    value = parse_json(result.out, "farverbs_qp_memory")
    return {key: figure(value, key) for key in
            ("bytes_per_qp", "footprint_bytes", "ring_bytes", "heap_bytes_per_qp",
             "resident_bytes_per_qp")}
