"""All measurements by name. One is made at most once a round, whatever rows use it."""

from . import dropin, ours, yardsticks
from .outcome import Skipped


def _split(context):
    def prepare():
        try:
            context.network.split_segments()
        except OSError as error:
            return f"no path without segmentation offloads: {error} (apt-get install ethtool)"
        return ""
    problem = context.once("split", prepare)
    if problem:
        raise Skipped(problem)


def split_tcp(context, congestion):
    _split(context)
    return yardsticks.iperf3(context, congestion, split=True)


def split_write(context):
    _split(context)
    return ours.write(context, split=True)


CELLS = {
    "tcp-cubic": lambda c: yardsticks.iperf3(c, "cubic"),
    "write": ours.write,
    "ib-write-bw": lambda c: dropin.bandwidth(c, "ib_write_bw"),
    "tcp-bbr": lambda c: yardsticks.iperf3(c, "bbr"),
    "gso-blast": yardsticks.blast,
    "memcpy": yardsticks.memcpy,
    "read": lambda c: ours.bandwidth(c, "read"),
    "send": lambda c: ours.bandwidth(c, "send"),
    "cp": ours.copy,
    "cold-tcp-cubic": lambda c: yardsticks.cold_tcp(c, "cubic"),
    "cold-write": ours.cold_write,
    "cold-tcp-bbr": lambda c: yardsticks.cold_tcp(c, "bbr"),
    "udp-spinning": lambda c: yardsticks.ping_pong(c, "udp", spin=True),
    "send-polling": lambda c: ours.latency(c, "send", "--wait", "poll", "--inline"),
    "ib-send-lat": lambda c: dropin.latency(c, "ib_send_lat"),
    "ib-write-lat": lambda c: dropin.latency(c, "ib_write_lat"),
    "tcp-spinning": lambda c: yardsticks.ping_pong(c, "tcp", spin=True),
    "udp-blocking": lambda c: yardsticks.ping_pong(c, "udp", spin=False),
    "write-asleep": lambda c: ours.latency(c, "write", "--target-idle", "--wait", "block",
                                           "--inline"),
    "tcp-blocking": lambda c: yardsticks.ping_pong(c, "tcp", spin=False),
    "send-blocking": lambda c: ours.latency(c, "send", "--wait", "block", "--inline"),
    "send-no-spin": lambda c: ours.latency(c, "send", "--wait", "block", "--spin", "0",
                                           "--inline"),
    "mmsg": yardsticks.small_messages,
    "small-writes": ours.small_writes,
    "split-tcp-cubic": lambda c: split_tcp(c, "cubic"),
    "split-write": split_write,
    "split-tcp-bbr": lambda c: split_tcp(c, "bbr"),
    "libfabric": yardsticks.libfabric_rxd,
    "ucx": yardsticks.ucx_put,
    "ucx-tags-rc": lambda c: dropin.ucx_bandwidth(c, True),
    "ucx-tags-tcp": lambda c: dropin.ucx_bandwidth(c, False),
    "ucx-lat-rc": lambda c: dropin.ucx_latency(c, True),
    "ucx-lat-tcp": lambda c: dropin.ucx_latency(c, False),
    "rstream": lambda c: dropin.stream(c, False),
    "rstream-tcp": lambda c: dropin.stream(c, True),
    "connections": dropin.connections,
    "one-qp": ours.one_queue_pair,
    "many-qps": ours.many_queue_pairs,
    "lab": ours.lab,
    "idle-memory": ours.idle_memory,
}


def order(names, round_number):
    """The cells of a round: neighbours are what is divided by each other, and every other round
    runs backwards, so that a machine that warms up or slows down favours nobody."""
    ordered = [name for name in CELLS if name in names]
    return ordered if round_number % 2 == 0 else ordered[::-1]
