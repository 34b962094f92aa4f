"""`pip wheel .` makes a wheel for every later interpreter, and what is installed from it works by itself."""

import os
import subprocess
import sys
import sysconfig
import zipfile

from conftest import MODEL, ROOT

WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_a_wheel(tmp_path):
    source = tmp_path / "source"
    # setuptools writes beside what it builds: a copy, whose setup.py finds the root by a link
    source.mkdir()
    for name in ("CMakeLists.txt", "cmake", "include"):
        (source / name).symlink_to(ROOT / name)
    subprocess.run(["cp", "-r", str(ROOT / "bindings"), str(source)], check=True)
    environment = {**os.environ, "RUNNEL_BUILD_DIR": os.environ["RUNNEL_BUILD"]}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w",
                    str(tmp_path), str(source / "bindings/python")], check=True, env=environment)
    wheel, = tmp_path.glob("*.whl")
    tag, suffix = "-cp39-abi3-linux_", ".abi3.so"
    if WITHOUT_GIL:
        tag, suffix = "t-linux_", sysconfig.get_config_var("EXT_SUFFIX")
    assert tag in wheel.name
    content = zipfile.ZipFile(wheel)
    names = set(content.namelist())
    entries, = (name for name in names if name.endswith("entry_points.txt"))
    assert "[llm]\nrunnel = runnel.llm" in content.read(entries).decode()
    assert {"runnel/_runnel" + suffix, "runnel/py.typed", "runnel/__init__.py", "runnel/blocking.py"} <= names
    stubs = {"runnel/" + path.name for path in (ROOT / "bindings/python/runnel").glob("*.pyi")}
    assert stubs and stubs <= names
    installed = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(installed),
                    str(wheel)], check=True)
    code = ("import sys, runnel\nwith runnel.blocking.Engine(compute_threads=1) as engine:\n"
            "    print(engine.load_model(sys.argv[1]).generate('Once', max_tokens=3), runnel.__file__)")
    done = subprocess.run([sys.executable, "-c", code, MODEL], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(installed)}, cwd=tmp_path)
    assert str(installed) in done.stdout
