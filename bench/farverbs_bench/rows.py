"""The table: what is measured over what, and which ratio it has to reach."""

import statistics
from dataclasses import dataclass
from typing import Optional, Tuple

from .outcome import Failed, Skipped

MORE, LESS = "more", "less"  # which way is better
OK, BELOW_AIM, MISSED, SKIPPED, FAILED, CONTEXT = (
    "ok", "below aim", "MISSED", "skipped", "FAILED", "")


@dataclass(frozen=True)
class Row:
    """`ours` over the yardstick. Of several yardsticks the one counts that moved the most in the
    same round. No yardstick: the figure itself is shown. must is None for context only."""
    key: str
    what: str
    ours: str
    theirs: Tuple[str, ...]
    metric: str
    must: Optional[float] = None
    aim: Optional[float] = None
    better: str = MORE
    theirs_metric: str = ""  # if it is not `metric`

    def cells(self):
        return {self.ours, *self.theirs}


TCP = ("tcp-cubic", "tcp-bbr")
COLD_TCP = ("cold-tcp-cubic", "cold-tcp-bbr")
SPLIT_TCP = ("split-tcp-cubic", "split-tcp-bbr")
BITS, CPU, P50, RATE = "bits_per_second", "cpu_seconds_per_gb", "p50_us", "messages_per_second"
CONNECTIONS = "connections_per_second"

ROWS = (
    Row("write", "WRITE 1 MiB, one QP, warm: throughput / iperf3 TCP", "write", TCP, BITS, 1.0, 1.2),
    Row("write-cpu", "same: CPU seconds per GB, both sides / iperf3 TCP", "write", TCP, CPU,
        1.0, 0.8, LESS),
    Row("cold", "WRITE over 1 GiB of cold memory / TCP on cold buffers", "cold-write", COLD_TCP,
        BITS, 1.15, 1.3),
    Row("read", "READ 1 MiB / WRITE", "read", ("write",), BITS, 0.9, 1.0),
    Row("send", "SEND 1 MiB / WRITE", "send", ("write",), BITS, 0.9, 1.0),
    Row("ping-udp", "64-byte SEND ping-pong, both polling, p50 / spinning UDP", "send-polling",
        ("udp-spinning",), P50, 1.25, 1.1, LESS),
    Row("ping-tcp", "same / spinning TCP", "send-polling", ("tcp-spinning",), P50, 0.85, 0.7, LESS),
    Row("asleep", "64-byte WRITE into a sleeping process, p50 / blocking UDP", "write-asleep",
        ("udp-blocking",), P50, 1.3, 1.1, LESS),
    Row("small", "64-byte WRITEs, depth 128, one QP: messages/s / sendmmsg+recvmmsg",
        "small-writes", ("mmsg",), RATE, 8, 20),
    Row("blocking", "64-byte SENDs one at a time, both blocking, p50 / blocking TCP",
        "send-blocking", ("tcp-blocking",), P50, 1.0, 0.85, LESS),
    Row("split", "no segmentation offload, WRITE 1 MiB / iperf3 TCP", "split-write", SPLIT_TCP,
        BITS, 0.75, 0.95),
    Row("libfabric", "WRITE 1 MiB / libfabric udp;ofi_rxd", "write", ("libfabric",), BITS, 10, 15),
    Row("ucx", "WRITE 1 MiB / UCX tcp put_bw", "write", ("ucx",), BITS, 3, 6),
    Row("qps", "10,000 QPs round-robin, 64 KiB / one QP", "many-qps", ("one-qp",), BITS, 0.7, 0.9),
    Row("cp", "cp of a page-cached 1 GiB file into tmpfs / WRITE 1 MiB", "cp", ("write",), BITS,
        0.7, 0.9),
    Row("lab", "lab 200 Mb/s, 100 ms, no loss: goodput / payload capacity", "lab", ("lab",), BITS,
        0.95, 0.98, theirs_metric="capacity"),
    Row("idle-qp", "one idle QP, bytes without its user-sized rings", "idle-memory", (),
        "bytes_per_qp", 4096, 2048, LESS),
    Row("ib-bw", "ib_write_bw 1 MiB / farverbs perf WRITE 1 MiB", "ib-write-bw", ("write",), BITS,
        0.9, 1.0),
    Row("ib-write-lat", "ib_write_lat 64 B, p50 / farverbs perf ping-pong", "ib-write-lat",
        ("send-polling",), P50, 1.1, 1.0, LESS),
    Row("ib-send-lat", "ib_send_lat 64 B, p50 / farverbs perf ping-pong", "ib-send-lat",
        ("send-polling",), P50, 1.1, 1.0, LESS),
    Row("ucx-rc", "UCX tag_bw 1 MiB, rc on our verbs / UCX over TCP", "ucx-tags-rc",
        ("ucx-tags-tcp",), BITS, 1.0, 1.5),
    Row("ucx-rc-lat", "UCX tag_lat 8 B, the same", "ucx-lat-rc", ("ucx-lat-tcp",), P50, 0.8, 0.5,
        LESS),
    Row("connections", "rdma_cm connections a second (cmtime, loopback)", "connections", (),
        CONNECTIONS, 1000, 5000),
    Row("rstream", "rstream over rsockets / over TCP, loopback", "rstream", ("rstream-tcp",), BITS,
        0.5, 1.0),
    # Where the figures above lie between what cannot be beaten and what is not asked for.
    Row("of-blast", "WRITE 1 MiB / bare GSO blaster, no ICRC, no acknowledgement", "write",
        ("gso-blast",), BITS),
    Row("of-memcpy", "WRITE 1 MiB / memcpy of 1 MiB in cache", "write", ("memcpy",), BITS,
        theirs_metric="warm_bits_per_second"),
    Row("no-spin", "64-byte SENDs, blocking without any spinning, p50 / blocking TCP",
        "send-no-spin", ("tcp-blocking",), P50, better=LESS),
)


def verdict(row, value):
    """How a median does against what the row must reach and aims at."""
    if row.must is None:
        return CONTEXT
    sign = 1 if row.better == MORE else -1
    if sign * value >= sign * row.aim:
        return OK
    return BELOW_AIM if sign * value >= sign * row.must else MISSED


@dataclass
class Outcome:
    """A row after all rounds. `values` are the ratios, one a round."""
    row: Row
    verdict: str
    reason: str = ""
    values: tuple = ()
    ours: tuple = ()
    theirs: tuple = ()
    chosen: tuple = ()  # names of the yardsticks that counted

    @property
    def median(self):
        return statistics.median(self.values)


def _yardstick(row, measured):
    """(name, figures) of the fastest yardstick of a round, of those that could be measured."""
    found = {name: measured[name] for name in row.theirs if isinstance(measured[name], dict)}
    if not found:
        raise measured[row.theirs[0]]
    if len(found) == 1:
        return next(iter(found.items()))
    return max(found.items(), key=lambda item: item[1][BITS])


def _round(row, measured):
    """(ratio, ours, theirs, yardstick's name) of one round; raises what a cell raised."""
    if not isinstance(measured[row.ours], dict):
        raise measured[row.ours]
    mine = measured[row.ours][row.metric]
    if not row.theirs:
        return mine, mine, None, ""
    name, figures = _yardstick(row, measured)
    theirs = figures[row.theirs_metric or row.metric]
    if theirs <= 0:
        raise Failed(f"{name} measured nothing")
    return mine / theirs, mine, theirs, name


def evaluate(row, rounds):
    """rounds: for each the cells by name, a dict of figures or the exception that came instead.
    A round in which something failed leaves the row to the others, but is told."""
    results, problems = [], []
    for measured in rounds:
        try:
            results.append(_round(row, measured))
        except (Skipped, Failed) as problem:
            problems.append(problem)
    failures = [str(problem) for problem in problems if isinstance(problem, Failed)]
    if failures:
        kind, reason = FAILED, failures[0]
    elif not results:
        kind, reason = SKIPPED, str(problems[0]) if problems else "no rounds"
    else:
        kind, reason = verdict(row, statistics.median(r[0] for r in results)), ""
    columns = tuple(zip(*results)) or ((), (), (), ())
    return Outcome(row, kind, reason, columns[0], columns[1], columns[2],
                   tuple(sorted({name for name in columns[3] if name})))
