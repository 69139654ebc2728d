#!/usr/bin/env python3
"""dissector_test.py FAR_CAPTURE: what tshark shows with dissector/farverbs.lua of a capture that our
own code wrote, field by field. Exits 77 where tshark is missing."""

import os
import shutil
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "dissector", "farverbs.lua")


def field_of(name):
    if name == "infiniband":
        return "infiniband.bth.opcode"
    return "_ws.expert" if name == "malformed" else "farverbs." + name


def value_of(name, text):
    """tshark's text as far_capture writes it."""
    if name == "infiniband":
        return "1" if text else ""
    if name == "malformed":
        return "1" if "Expert" in text or text else ""
    return {"True": "1", "False": "0"}.get(text, text)


def main():
    tshark = shutil.which("tshark")
    if tshark is None:
        print("tshark is missing: apt install tshark")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "far.pcap")
        listing = subprocess.run([sys.argv[1], capture], check=True, capture_output=True, text=True).stdout
        expected = [dict(pair.split("=", 1) for pair in line.split()) for line in listing.splitlines()]
        names = sorted({name for packet in expected for name in packet})
        command = [tshark, "-X", "lua_script:" + SCRIPT, "-r", capture, "-T", "fields",
                   "-E", "separator=/t", "-E", "occurrence=a"]
        for name in names:
            command += ["-e", field_of(name)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "lua" not in result.stderr.lower(), result.stderr
        shown = result.stdout.splitlines()
        summary = subprocess.run([tshark, "-X", "lua_script:" + SCRIPT, "-r", capture],
                                 check=True, capture_output=True, text=True).stdout
    assert len(shown) == len(expected), (len(shown), len(expected))
    for number, (line, packet) in enumerate(zip(shown, expected), 1):
        got = dict(zip(names, line.split("\t")))
        for name, value in packet.items():
            assert value_of(name, got[name]) == value, f"packet {number}: {name} is {got[name]!r}, not {value}"
        if packet.get("malformed") is None:
            assert got.get("malformed", "") == "" or packet.get("icrc.bad") == "1" \
                or packet.get("ack.status") == "2", f"packet {number}: {got['malformed']}"
    assert "FAR WRITE qp=0xabcdef pn=78187493530 message=77 offset=1432 len=1432" in summary, summary
    assert "FAR ACK qp=0xabcdef pn=78187493530 carried-out=77 ok missing=5 delay=25us" in summary, summary
    assert "refused: remote access error" in summary, summary
    print(f"{len(expected)} packets dissected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
