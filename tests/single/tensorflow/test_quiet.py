from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpcomm.tensorflow.quiet import _without_chatter


def test_only_known_lines_are_dropped(capfd):
    with _without_chatter():
        os.write(2, b"I0000 port.cc:153] oneDNN custom operations are on. You may see\n")
        sys.stderr.write("a real warning\n")
        os.write(2, b"E0000 a real error\n")
    os.write(2, b"afterwards\n")
    shown = capfd.readouterr().err.splitlines()
    assert sorted(shown) == ["E0000 a real error", "a real warning", "afterwards"]


def test_what_was_held_back_shows_when_the_import_fails(capfd):
    def fail():
        with _without_chatter():
            os.write(2, b"cannot load libsomething.so\n")
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    assert capfd.readouterr().err == "cannot load libsomething.so\n"


@pytest.mark.tensorflow
def test_importing_tensorflow_says_nothing():
    code = "from hpcomm.tensorflow.quiet import import_quietly as f; f(); import keras; f()"
    clean = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=clean
    )
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.tensorflow
@pytest.mark.parametrize(("level", "shown"), [(None, ["E"]), ("0", ["I", "W", "E"])])
def test_log_level_counts_for_all_of_tensorflow(level, shown):
    code = """if True:
        from hpcomm.tensorflow.quiet import import_quietly
        import_quietly()
        import ctypes, re
        from pathlib import Path
        import tensorflow
        library = next(Path(tensorflow.__file__).parent.glob("libtensorflow_framework.so*"))
        get = re.search(rb"_ZN4absl(?:\\d+lts_\\d+)?11MinLogLevelEv", library.read_bytes()).group()
        print(getattr(ctypes.CDLL(str(library)), get.decode())())
    """
    clean = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    if level is not None:
        clean["TF_CPP_MIN_LOG_LEVEL"] = level
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=clean
    )
    assert done.returncode == 0, done.stderr
    assert ["I", "W", "E"][int(done.stdout) :] == shown
