#!/usr/bin/env python3
"""The names and versions that a drop-in library exports are those of the list, and the stock
library's where that is installed.

    symbols_test.py LIBRARY LIST [STOCK_LIBRARY]
"""

import os
import shutil
import subprocess
import sys


def exported(library):
    """Sorted NAME@VERSION or NAME@@VERSION; the version nodes themselves are left out."""
    text = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True,
                          text=True).stdout
    names = [line.split()[-1] for line in text.splitlines()]
    return sorted(name for name in names if not name.startswith(("IBVERBS_", "RDMACM_")))


def main():
    library, listed = sys.argv[1:3]
    with open(listed, encoding="ascii") as file:
        wanted = sorted(file.read().split())
    found = exported(library)
    missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if missing or extra:
        print(f"{library}: missing {missing}, too many {extra}")
        return 1
    print(f"{library}: {len(found)} symbols, as listed")

    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True,
                             text=True).stdout
    for flag in ("NOW", "NODELETE"):
        if flag not in dynamic:
            print(f"{library}: the flag {flag} is missing")
            return 1
    if "libstdc++" in dynamic:
        print(f"{library}: needs libstdc++, which should be inside")
        return 1

    stock = sys.argv[3] if len(sys.argv) > 3 else ""
    if not os.path.exists(stock) or shutil.which("abidiff") is None:
        print("not compared with the stock library: it or abidiff (abigail-tools) is not installed")
        return 1 if os.environ.get("FARVERBS_REQUIRE_STOCK") else 0
    compared = subprocess.run(["abidiff", "--no-added-syms", stock, library], check=False)
    if compared.returncode != 0:
        print(f"abidiff {stock} {library}: exit code {compared.returncode}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
