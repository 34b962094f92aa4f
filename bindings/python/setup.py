"""Builds the extension module with CMake: `pip wheel .`, or `pip install .`. The environment variable RUNNEL_BUILD_DIR
names a folder that CMake has configured already; else a new one is made, and the library compiled in it. A folder that
was configured for interpreters of another kind is refused."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def version():
    return re.search(r"project\(runnel VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


# What CMake makes, and the variable that names the interpreter it is for.
TARGETS = (("runnel_python", "RUNNEL_PYTHON", "runnel"),
           ("runnel_python_free_threaded", "RUNNEL_PYTHON_FREE_THREADED", "free_threaded/runnel"))
KIND = """import sysconfig
print(sysconfig.get_config_var("SOABI") if sysconfig.get_config_var("Py_GIL_DISABLED") else "abi3")"""


def kind_of(interpreter):
    """Interpreters of one kind take the same module: those with a GIL by the limited API."""
    return subprocess.run([interpreter, "-c", KIND], capture_output=True, text=True).stdout.strip()


def target_of(folder):
    """The target that makes the module for this interpreter, and where it is then."""
    cache = pathlib.Path(folder, "CMakeCache.txt").read_text()
    interpreters = dict(re.findall(r"^(RUNNEL_PYTHON\w*):\w+=(.+)$", cache, re.MULTILINE))
    for target, variable, place in TARGETS:
        interpreter = shutil.which(interpreters.get(variable, ""))
        if interpreter is not None and kind_of(interpreter) == kind_of(sys.executable):
            return target, pathlib.Path(folder, "bindings/python", place)
    names = ", ".join(interpreters.values())
    sys.exit(f"{folder} was configured for {names}, whose modules {sys.executable} does not take")


class Build(build_ext):
    def build_extension(self, extension):
        folder = os.environ.get("RUNNEL_BUILD_DIR")
        if not folder:
            folder = os.path.abspath(os.path.join(self.build_temp, "cmake"))
            subprocess.run(["cmake", "-S", str(ROOT), "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                            "-DRUNNEL_BUILD_TESTS=OFF", "-DRUNNEL_BUILD_APPS=OFF", "-DRUNNEL_BUILD_BENCH=OFF",
                            "-DRUNNEL_BUILD_EXAMPLES=OFF", "-DRUNNEL_BUILD_BINDINGS=ON",
                            "-DRUNNEL_PYTHON=" + sys.executable], check=True)
        target, place = target_of(folder)
        subprocess.run(["cmake", "--build", folder, "--target", target, "--parallel"], check=True)
        made, = place.glob("_runnel*.so")
        module = pathlib.Path(self.get_ext_fullpath(extension.name))
        module.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, module)


class Wheel(bdist_wheel):
    def finalize_options(self):
        if not WITHOUT_GIL:
            self.py_limited_api = "cp39"
        super().finalize_options()


setup(version=version(), cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
      ext_modules=[Extension("runnel._runnel", [], py_limited_api=not WITHOUT_GIL)])
