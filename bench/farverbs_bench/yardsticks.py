"""What Farverbs is divided by: iperf3, the bare sockets of farverbs_yardstick, UCX, libfabric."""

import json
import math

from . import process
from .context import GIB, MIB
from .outcome import Failed, Skipped

IPERF_PORT = 5201
YARDSTICK_PORT = 4790
UCX_PORT = 13337
LIBFABRIC_PORT = 47592
UCX = ("ucx_perftest", "ucx-utils")
LIBFABRIC = ("fi_pingpong", "libfabric-bin")
CONGESTION = ("cubic", "bbr")


def parse_json(text, what):
    """The object a program printed."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Failed(f"{what} printed no JSON: {text.strip()[:200]!r}") from error
    if not isinstance(value, dict):
        raise Failed(f"{what} printed JSON that is no object")
    return value


def figure(value, *keys):
    """The number at a path of keys, or Failed."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            raise Failed(f"the JSON has no {'.'.join(keys)}")
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Failed(f"{'.'.join(keys)} is no number")
    return float(value)


def available_congestion_controls():
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="ascii") as file:
        return file.read().split()


def check_congestion(name):
    if name not in available_congestion_controls():
        raise Skipped(f"this kernel has no TCP {name}: modprobe tcp_{name}")


def iperf3_figures(text, cpu_seconds):
    """Of `iperf3 -J`: what the receiver got, and what both sides cost."""
    value = parse_json(text, "iperf3")
    if "error" in value:
        raise Failed(f"iperf3: {value['error']}")
    received = figure(value, "end", "sum_received", "bytes")
    if received <= 0:
        raise Failed("iperf3 moved nothing")
    return {"bits_per_second": figure(value, "end", "sum_received", "bits_per_second"),
            "bytes": received, "cpu_seconds": cpu_seconds,
            "cpu_seconds_per_gb": cpu_seconds / received * 1e9}


def iperf3(context, congestion, split=False):
    """iperf3 counts whole seconds."""
    program = context.installed("iperf3", "iperf3")
    check_congestion(congestion)
    far = context.network.far
    address = far.split_address if split else far.address
    seconds = max(1, round(context.seconds))
    result, cpu = process.run_pair(
        context.network, [program, "-s", "-1", "-p", IPERF_PORT],
        [program, "-c", address, "-p", IPERF_PORT, "-t", seconds, "-C", congestion, "-J"],
        IPERF_PORT, context.limit)
    figures = iperf3_figures(result.out, cpu)
    if result.exit_code != 0:
        raise Failed(f"iperf3: {result.why()}")
    return figures


def bare(context, name, *options):
    """The JSON of farverbs_yardstick."""
    program = context.built("farverbs_yardstick")
    address = context.network.far.address
    result, _ = process.run_pair(
        context.network, [program, name, "server", "--bind", address, "--port", YARDSTICK_PORT],
        [program, name, "client", address, "--port", YARDSTICK_PORT, *options],
        YARDSTICK_PORT, context.limit)
    if result.exit_code != 0:
        raise Failed(f"farverbs_yardstick {name}: {result.why()}")
    return parse_json(result.out, f"farverbs_yardstick {name}")


def ping_pong(context, protocol, spin):
    value = bare(context, f"{protocol}-pingpong", "--size", 64, "--seconds", context.seconds,
                 "--spin" if spin else "--blocking")
    return {"p50_us": figure(value, "round_trip_us", "p50"),
            "p99_us": figure(value, "round_trip_us", "p99")}


def small_messages(context):
    value = bare(context, "mmsg-rate", "--size", 64, "--seconds", context.seconds)
    return {"messages_per_second": figure(value, "messages_per_second")}


def blast(context):
    value = bare(context, "gso-blast", "--seconds", context.seconds)
    return {"bits_per_second": figure(value, "bits_per_second"),
            "cpu_seconds_per_gb": figure(value, "cpu_seconds_per_gigabyte")}


def cold_bytes(context):
    """The size of each side's cold memory, ours and TCP's."""
    return GIB // 4 if context.quick else GIB


def cold_tcp(context, congestion):
    check_congestion(congestion)
    size = cold_bytes(context)
    context.need_memory(2 * size + GIB // 2)
    value = bare(context, "tcp-cold", "--region", size, "--rounds", 1 if context.quick else 3,
                 "--congestion", congestion)
    return {"bits_per_second": figure(value, "bits_per_second"),
            "cpu_seconds_per_gb": figure(value, "cpu_seconds_per_gigabyte")}


def memcpy(context):
    program = context.built("farverbs_yardstick")
    sizes = (64 << 10, MIB, 256 * MIB)
    result = process.run([program, "memcpy", "--sizes", ",".join(map(str, sizes)), "--seconds",
                          min(0.2, context.seconds / 3)], context.limit)
    copies = parse_json(result.out, "farverbs_yardstick memcpy").get("copies", [])
    rates = {copy["size"]: copy["bytes_per_second"] for copy in copies}
    if any(size not in rates for size in sizes):
        raise Failed("farverbs_yardstick memcpy left out a size")
    return {"warm_bytes_per_second": rates[MIB], "cold_bytes_per_second": rates[256 * MIB]}


def ucx_figures(text):
    """Of `ucx_perftest -f -v`: the last line is of comma-separated figures, of which the second is
    the median latency in us and the sixth the overall bandwidth in MiB/s. The words before are a
    header or warnings."""
    for line in reversed(text.strip().splitlines()):
        words = line.split(",")
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            continue
        if len(numbers) >= 6:
            return {"p50_us": numbers[1], "bits_per_second": numbers[5] * MIB * 8}
    raise Failed(f"ucx_perftest printed no figures: {text.strip()[-200:]!r}")


def ucx_put(context):
    """Counts messages, not seconds: as many as the 3 to 5 Gb/s it is known for fill."""
    program = context.installed(*UCX)
    count = math.ceil(context.seconds * 400)
    options = ["-t", "ucp_put_bw", "-s", MIB, "-n", count, "-w", 20, "-p", UCX_PORT, "-f", "-v"]
    result, cpu = process.run_pair(
        context.network, [program, *options], [program, context.network.far.address, *options],
        UCX_PORT, context.limit, own_sysfs=True,
        environment={"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "wire0",
                     "UCX_WARN_UNUSED_ENV_VARS": "n"})
    if result.exit_code != 0:
        raise Failed(f"ucx_perftest: {result.why()}")
    return {**ucx_figures(result.out), "cpu_seconds": cpu}


def libfabric_bits_per_second(text):
    """Of fi_pingpong: a header that names a column MB/sec (10^6), and one line of figures."""
    lines = [line.split() for line in text.strip().splitlines()]
    for names, values in zip(lines, lines[1:]):
        if "MB/sec" in names and len(values) == len(names):
            try:
                return float(values[names.index("MB/sec")]) * 8e6
            except ValueError as error:
                raise Failed(f"fi_pingpong's figures are none: {' '.join(values)}") from error
    raise Failed(f"fi_pingpong printed no figures: {text.strip()[-200:]!r}")


def libfabric_rxd(context):
    """A ping-pong of 1 MiB messages: its transfer rate, one message at a time."""
    program = context.installed(*LIBFABRIC)
    count = math.ceil(context.seconds * 60)
    options = ["-p", "udp;ofi_rxd", "-e", "rdm", "-S", MIB, "-I", count]
    result, cpu = process.run_pair(
        context.network, [program, *options, "-B", LIBFABRIC_PORT],
        [program, *options, "-P", LIBFABRIC_PORT, context.network.far.address],
        LIBFABRIC_PORT, context.limit, own_sysfs=True)
    if result.exit_code != 0:
        raise Failed(f"fi_pingpong: {result.why()}")
    return {"bits_per_second": libfabric_bits_per_second(result.out), "cpu_seconds": cpu}
