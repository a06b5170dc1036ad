"""The provider, and its algorithms: each is a command of unmix, with a few of its options and a text for all others."""

import json
import os
import shlex
import shutil
import subprocess

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
# Commands: what they are, whether they take a library, and must have one, and the map that is opened.
COMMANDS = {
    "run": ("Unmix a scene: abundances, certified", True, False, "abundance"),
    "mesma": ("Choose the best model of a spectrum a class (MESMA)", True, True, "fraction"),
    "report": ("Write an HTML page about a run", False, False, ""),
}


class Command(QgsProcessingAlgorithm):
    """A command of unmix."""

    def __init__(self, command):
        super().__init__()
        self.command = command
        self.title, self.takes_library, self.needs_library, self.shown = COMMANDS[command]

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
        """Return the words of the command, and the folder for its outputs."""
        given = self.parameterAsFile(parameters, "INPUT", context)
        words = [self.parameterAsString(parameters, "PROGRAM", context), self.command]
        if not self.shown:  # a stem is what a map's name begins with
            return [*words, given], os.path.dirname(given)
        folder = self.parameterAsString(parameters, "OUTPUT", context)
        words += [given, "--out-dir", folder, "--format", "geotiff", "--overwrite", "--progress", "json"]
        if self.takes_library and self.parameterAsFile(parameters, "LIBRARY", context):
            words += ["--endmembers", self.parameterAsFile(parameters, "LIBRARY", context)]
        if self.command == "run" and self.parameterAsEnum(parameters, "METHOD", context):
            words += ["--method", METHODS[self.parameterAsEnum(parameters, "METHOD", context)]]
        return words, folder

    def report(self, line, feedback):
        """Hand over a line: progress, which comes twice a second as JSON, or a message."""
        try:
            done = json.loads(line)
            feedback.setProgress(100 * done["lines_done"] / done["lines"])
        except (ValueError, KeyError, TypeError):
            feedback.pushInfo(line)

    def processAlgorithm(self, parameters, context, feedback):
        words, folder = self.words(parameters, context)
        words += shlex.split(self.parameterAsString(parameters, "OPTIONS", context), posix=os.name == "posix")
        if shutil.which(words[0]) is None:
            raise QgsProcessingException(
                f"there is no program {words[0]}; install it with pip install 'unmix[all]', or name it"
            )
        feedback.pushCommandInfo(shlex.join(words))
        # Libraries and modules of QGIS are not those of the program.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GDAL_", "PROJ_"))}
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own) as process:
            for line in process.stdout:
                self.report(line.rstrip(), feedback)
                if feedback.isCanceled():
                    process.terminate()
        if feedback.isCanceled():
            return {}
        if process.returncode:
            raise QgsProcessingException(f"unmix ended with exit code {process.returncode}; its messages are above")
        stem = os.path.splitext(os.path.basename(self.parameterAsFile(parameters, "INPUT", context)))[0]
        shown = os.path.join(folder, f"{stem}_{self.shown}.tif")
        return {"OUTPUT": folder, "MAP": shown} if self.shown else {}


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
