"""What a measurement has at hand: programs, network, how long to measure."""

import os
import shutil
from dataclasses import dataclass, field

from . import isolation, process
from .outcome import Failed, Skipped

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
MIB = 1 << 20
GIB = 1 << 30


@dataclass
class Context:
    """Made once a run."""
    build: str            # folder of the build that is measured
    seconds: float        # of a measurement
    quick: bool
    network: object = None
    directory: str = ""   # on disk, removed at the end
    notes: list = field(default_factory=list)
    _tools: dict = field(default_factory=dict)
    _prepared: dict = field(default_factory=dict)

    @property
    def limit(self):
        """Seconds after which a program is taken for hanging."""
        return 60 + 6 * self.seconds

    def built(self, name):
        """A program of the project."""
        if name not in self._prepared:
            found = ""
            for folder, _, files in os.walk(self.build):
                path = os.path.join(folder, name)
                if name in files and os.access(path, os.X_OK):
                    found = path
                    break
            self._prepared[name] = found
        if not self._prepared[name]:
            raise Skipped(f"{name} is not built: ./dev build release")
        return self._prepared[name]

    def farverbs(self, tool):
        """The binary, if it has this tool."""
        binary = self.built("farverbs")
        if tool not in self._tools:
            try:
                process.run([binary, tool, "--help"], 10)
                self._tools[tool] = True
            except Failed:
                self._tools[tool] = False
        if not self._tools[tool]:
            raise Skipped(f"this build of farverbs has no '{tool}'")
        return binary

    @staticmethod
    def installed(name, package):
        """A program of the system."""
        path = shutil.which(name)
        if path is None:
            raise Skipped(f"{name} is not installed: apt-get install {package}")
        return path

    def once(self, key, make):
        """make(), the first time; what it returned, later."""
        if key not in self._prepared:
            self._prepared[key] = make()
        return self._prepared[key]

    @staticmethod
    def need_memory(size):
        available = isolation.available_memory()
        if available < size:
            raise Skipped(f"needs {size // MIB} MiB of memory, {available // MIB} MiB are free")
