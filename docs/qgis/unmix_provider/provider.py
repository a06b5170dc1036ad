"""The provider, and its algorithms: each is a command of unmix, with a few of its options and a text for all others."""

import json
import os
import queue
import shlex
import shutil
import subprocess
import threading

from qgis.core import (
    QgsApplication,
    QgsProcessingAlgorithm,
    QgsProcessingException,
    QgsProcessingOutputRasterLayer,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFile,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterString,
    QgsProcessingProvider,
)

METHODS = ("the default", "fcls", "nnls", "pcls")
# Seconds between two looks at whether the user wants to stop.
POLL = 0.5
WITH_PROGRESS = ("--progress", "json")
# Commands: what they are, whether they take a library, and must have one, the map that is opened, and their further words.
COMMANDS = {
    "run": ("Unmix a scene: abundances, certified", True, False, "abundance", WITH_PROGRESS),
    "mesma": ("Choose the best model of a spectrum a class (MESMA)", True, True, "fraction", WITH_PROGRESS),
    "match": (
        "Name each pixel by the nearest spectrum of a library",
        True,
        True,
        "match_class",
        ("--class-map", "--report"),
    ),
    "detect": ("Find targets: matched filter or ACE", True, True, "detect", ()),
    "report": ("Write an HTML page about a run", False, False, "", ()),
}


def lines_of(process, feedback):
    """Yield the lines that a program writes; end it when the user wants to stop, also while it writes nothing."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        if feedback.isCanceled():
            process.terminate()
        try:
            line = lines.get(timeout=POLL)
        except queue.Empty:
            continue
        if line is None:
            return
        yield line.rstrip()


class Command(QgsProcessingAlgorithm):
    """A command of unmix."""

    def __init__(self, command):
        super().__init__()
        self.command = command
        self.title, self.takes_library, self.needs_library, self.shown, self.further = COMMANDS[command]
        self.files = []

    def createInstance(self):
        return Command(self.command)

    def name(self):
        return self.command

    def displayName(self):
        return self.title

    def shortHelpString(self):
        return f"Runs unmix {self.command}. All its options: unmix {self.command} --help-all"

    def initAlgorithm(self, configuration=None):
        what = "One of the maps of a run" if self.command == "report" else "Scene (ENVI, GeoTIFF, NetCDF, HDF5)"
        self.addParameter(QgsProcessingParameterFile("INPUT", what))
        if self.takes_library:
            self.addParameter(
                QgsProcessingParameterFile("LIBRARY", "Spectral library", optional=not self.needs_library)
            )
        if self.command == "run":
            self.addParameter(QgsProcessingParameterEnum("METHOD", "Method", METHODS, defaultValue=0))
        self.addParameter(
            QgsProcessingParameterString("OPTIONS", "Further options, as on the command line", "", optional=True)
        )
        self.addParameter(QgsProcessingParameterString("PROGRAM", "The program", "unmix"))
        if self.shown:
            self.addParameter(QgsProcessingParameterFolderDestination("OUTPUT", "Folder for the maps"))
            self.addOutput(QgsProcessingOutputRasterLayer("MAP", f"The map of each {self.shown}"))

    def words(self, parameters, context):
        """Return the words of the command."""
        given = self.parameterAsFile(parameters, "INPUT", context)
        words = [self.parameterAsString(parameters, "PROGRAM", context), self.command]
        if not self.shown:  # a stem is what a map's name begins with
            return [*words, given]
        folder = self.parameterAsString(parameters, "OUTPUT", context)
        words += [given, "--out-dir", folder, "--format", "geotiff", "--overwrite", "--json", *self.further]
        if self.takes_library and self.parameterAsFile(parameters, "LIBRARY", context):
            words += ["--endmembers", self.parameterAsFile(parameters, "LIBRARY", context)]
        if self.command == "run" and self.parameterAsEnum(parameters, "METHOD", context):
            words += ["--method", METHODS[self.parameterAsEnum(parameters, "METHOD", context)]]
        return words

    def report(self, line, feedback):
        """Hand over a line: progress, which comes twice a second as JSON, a message, or the result, whose files are noted."""
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            feedback.pushInfo(line)
        elif "lines_done" in said:
            feedback.setProgress(100 * said["lines_done"] / said["lines"])
        else:
            self.files += said.get("files") or list(said.get("digests") or {})

    def processAlgorithm(self, parameters, context, feedback):
        words = self.words(parameters, context)
        words += shlex.split(self.parameterAsString(parameters, "OPTIONS", context), posix=os.name == "posix")
        if shutil.which(words[0]) is None:
            raise QgsProcessingException(
                f"there is no program {words[0]}; install it with pip install 'unmix[all]', or name it"
            )
        feedback.pushCommandInfo(shlex.join(words))
        # Libraries and modules of QGIS are not those of the program.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GDAL_", "PROJ_"))}
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own) as process:
            for line in lines_of(process, feedback):
                self.report(line, feedback)
        if feedback.isCanceled():
            return {}
        if process.returncode:
            raise QgsProcessingException(f"unmix ended with exit code {process.returncode}; its messages are above")
        folder = self.parameterAsString(parameters, "OUTPUT", context) if self.shown else ""
        maps = [name for name in map(os.path.basename, self.files) if name.endswith(f"_{self.shown}.tif")]
        return (
            {"OUTPUT": folder, "MAP": os.path.join(folder, maps[0])}
            if maps
            else {"OUTPUT": folder}
            if self.shown
            else {}
        )


class Provider(QgsProcessingProvider):
    """The provider of the toolbox."""

    def loadAlgorithms(self):
        for command in COMMANDS:
            self.addAlgorithm(Command(command))

    def id(self):
        return "unmix"

    def name(self):
        return "unmix"


class Plugin:
    """What QGIS loads."""

    def initProcessing(self):
        self.provider = Provider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):
        self.initProcessing()

    def unload(self):
        QgsApplication.processingRegistry().removeProvider(self.provider)
