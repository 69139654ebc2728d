"""Stock RDMA programs, unmodified, on the drop-in libraries (`farverbs run`)."""

import math
import re

from . import process
from .context import MIB
from .outcome import Failed
from .yardsticks import UCX, ucx_figures

PERFTEST_PORT = 18650
UCX_PORT = 13338
RSTREAM_PORT = 7473
CM_PORT = 7474
CONNECTIONS = 1000


def device(context):
    """Our device at the wire, as both ends call it."""
    def find():
        result = process.run([context.farverbs("run"), "run", "--", "ibv_devices"], 30,
                             context.network.near)
        names = re.findall(r"^\s+(\S+)\s+[0-9a-f]{16}$", result.out, re.M)
        wanted = [name for name in names if name.endswith("wire0")]
        return wanted[0] if wanted else ""
    context.installed("ibv_devices", "ibverbs-utils")
    name = context.once("drop-in device", find)
    if not name:
        raise Failed("ibv_devices shows no device of wire0")
    return name


def _pair(context, server, client, port, **options):
    run = [context.farverbs("run"), "run", "--"]
    result, cpu = process.run_pair(context.network, run + server, run + client, port,
                                   context.limit, **options)
    if result.exit_code != 0:
        raise Failed(f"{server[0]}: {result.why()}")
    return result.out, cpu


def perftest_row(text):
    """The figures of the one row that a perftest program printed, by column."""
    lines = [line for line in text.splitlines() if line.strip()]
    for heading, row in zip(lines, lines[1:]):
        if heading.strip().startswith("#bytes"):
            # "BW peak[Gb/sec]" and "99% percentile[usec]" are one column each: names are apart by
            # two blanks at least, but for the first two of a latency.
            spread = heading.strip().replace("#bytes #iterations", "#bytes  #iterations")
            names = re.split(r"\s{2,}", spread)
            values = row.split()
            if len(values) == len(names):
                return {name: float(value) for name, value in zip(names, values)}
    raise Failed(f"perftest printed no figures: {text.strip()[-300:]!r}")


def _perftest(context, program, *options):
    context.installed(program, "perftest")
    command = [program, "-d", device(context), "-x", 0, "-p", PERFTEST_PORT, "-F", *options]
    text, cpu = _pair(context, command, command + [context.network.far.address], PERFTEST_PORT)
    return perftest_row(text), cpu


def bandwidth(context, program):
    row, _ = _perftest(context, program, "-s", MIB, "-D", max(1, round(context.seconds)),
                       "--report_gbits")
    for name, value in row.items():
        if name.startswith("BW average"):
            return {"bits_per_second": value * 1e9}
    raise Failed(f"{program} printed no average")


def latency(context, program):
    """perftest halves its round trips; a round trip is what `farverbs perf` tells."""
    count = 20_000 if not context.quick else 2_000
    row, _ = _perftest(context, program, "-s", 64, "-n", count)
    for name, value in row.items():
        if name.startswith("t_typical"):
            return {"p50_us": 2 * value}
    raise Failed(f"{program} printed no typical latency")


def ucx_tags(context, test, size, count, over_verbs):
    """tag_bw or tag_lat, over our verbs (rc) or over TCP; latency is of half a round trip."""
    program = context.installed(*UCX)
    options = ["-t", test, "-s", size, "-n", count, "-w", 20, "-p", UCX_PORT, "-f", "-v"]
    if over_verbs:
        environment = {"UCX_TLS": "rc_verbs,ud_verbs,self",
                       "UCX_NET_DEVICES": f"{device(context)}:1"}
        prefix = [context.farverbs("run"), "run", "--"]
    else:
        environment, prefix = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "wire0"}, []
    environment["UCX_WARN_UNUSED_ENV_VARS"] = "n"
    command = [*prefix, program, *options]
    result, _ = process.run_pair(
        context.network, command, [*prefix, program, context.network.far.address, *options],
        UCX_PORT, context.limit, own_sysfs=not over_verbs, environment=environment)
    if result.exit_code != 0:
        raise Failed(f"ucx_perftest: {result.why()}")
    return ucx_figures(result.out)


def ucx_bandwidth(context, over_verbs):
    return ucx_tags(context, "tag_bw", MIB, math.ceil(context.seconds * 300), over_verbs)


def ucx_latency(context, over_verbs):
    return ucx_tags(context, "tag_lat", 8, 20_000 if not context.quick else 2_000, over_verbs)


def connection_seconds(text):
    """Of cmtime: what all steps up to the connection took, for all connections, in seconds."""
    total = 0.0
    for step in ("create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect"):
        found = re.search(rf"^{step}\s*:?\s+([\d.]+)", text, re.M)
        if not found and step == "bind addr":  # only who is told an address binds to it
            continue
        if not found:
            raise Failed(f"cmtime printed no figure for '{step}': {text.strip()[-300:]!r}")
        total += float(found.group(1)) / 1e3
    if total <= 0:
        raise Failed("cmtime's steps took no time")
    return total


def connections(context):
    """Over the loopback address of one end: both programs in one namespace."""
    context.installed("cmtime", "rdmacm-utils")
    count = CONNECTIONS if not context.quick else 200
    run = [context.farverbs("run"), "run", "--", "cmtime", "-p", CM_PORT, "-c", count]
    with process.Process([*run, "-b", "127.0.0.1"], context.network.far) as server:
        server.settle(1.0)
        result = process.run([*run, "-s", "127.0.0.1"], context.limit, context.network.far)
    return {"connections_per_second": count / connection_seconds(result.out)}


def stream_bits_per_second(text):
    """Of rstream: name, bytes, transfers, total, time, Gb/sec, usec/xfer."""
    lines = [line.split() for line in text.strip().splitlines()]
    for names, values in zip(lines, lines[1:]):
        if "Gb/sec" in names and len(values) == len(names):
            return float(values[names.index("Gb/sec")]) * 1e9
    raise Failed(f"rstream printed no figures: {text.strip()[-200:]!r}")


def stream(context, over_tcp):
    """rstream over rsockets, or the same program over TCP, through the loopback interface."""
    context.installed("rstream", "rdmacm-utils")
    options = ["-p", RSTREAM_PORT, "-S", MIB, "-C", 1000 if not context.quick else 200, "-I", 1,
               "-T", "s" if over_tcp else "b"]
    run = [] if over_tcp else [context.farverbs("run"), "run", "--"]
    with process.Process([*run, "rstream", "-b", "127.0.0.1", *options],
                         context.network.far) as server:
        server.settle(1.0)
        result = process.run([*run, "rstream", "-s", "127.0.0.1", *options], context.limit,
                             context.network.far)
    return {"bits_per_second": stream_bits_per_second(result.out)}
