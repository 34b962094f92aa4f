"""Builds the extension module with CMake: `pip wheel .`, or `pip install .`. The environment variable RUNNEL_BUILD_DIR
names a folder that CMake has configured already; else a new one is made, and the library compiled in it."""

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


class Build(build_ext):
    def build_extension(self, extension):
        folder = os.environ.get("RUNNEL_BUILD_DIR")
        if not folder:
            folder = os.path.abspath(os.path.join(self.build_temp, "cmake"))
            subprocess.run(["cmake", "-S", str(ROOT), "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                            "-DRUNNEL_BUILD_TESTS=OFF", "-DRUNNEL_BUILD_APPS=OFF", "-DRUNNEL_BUILD_BENCH=OFF",
                            "-DRUNNEL_BUILD_EXAMPLES=OFF", "-DRUNNEL_BUILD_BINDINGS=ON",
                            "-DRUNNEL_PYTHON=" + sys.executable], check=True)
        subprocess.run(["cmake", "--build", folder, "--target", "runnel_python", "--parallel"], check=True)
        made, = pathlib.Path(folder, "bindings/python/runnel").glob("_runnel*.so")
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, target)


class Wheel(bdist_wheel):
    def finalize_options(self):
        if not WITHOUT_GIL:
            self.py_limited_api = "cp39"
        super().finalize_options()


setup(version=version(), cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
      ext_modules=[Extension("runnel._runnel", [], py_limited_api=not WITHOUT_GIL)])
