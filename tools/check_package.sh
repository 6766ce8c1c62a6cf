#!/usr/bin/env bash
# Builds the sdist, builds the wheel from it in isolation, installs the wheel with its extras into a new environment
# and trains there with a PATH on which no compiler can be found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
out=$root/build/package
rm -rf "$out"
mkdir -p "$out/tools"

echo "package: sdist, and the wheel from the sdist"
.venv/bin/python -m build --outdir "$out" . >"$out/build.log" 2>&1 || { tail -n 40 "$out/build.log" >&2; exit 1; }
wheel=$(ls "$out"/hpcomm-*.whl)
sdist=$(ls "$out"/hpcomm-*.tar.gz)
tar -tzf "$sdist" >"$out/sdist.txt"
.venv/bin/python -m zipfile -l "$wheel" >"$out/wheel.txt"
for name in csrc/core/error.hpp bindings/module.cpp tests/single/test_repository.py LICENSE README.md Makefile; do
  grep -q "/$name\$" "$out/sdist.txt" || { echo "package: the sdist lacks $name" >&2; exit 1; }
done
for name in hpcomm/py.typed hpcomm/_core.pyi hpcomm/cli/main.py 'hpcomm/_core\.[^ ]*so'; do
  grep -q "^$name " "$out/wheel.txt" || { echo "package: the wheel lacks $name" >&2; exit 1; }
done
if grep -E '^(csrc|bindings|tests)/|__pycache__' "$out/wheel.txt"; then
  echo "package: the wheel holds files that are not of the package" >&2
  exit 1
fi
.venv/bin/python -m zipfile -e "$wheel" "$out/unpacked"
readelf -d "$out"/unpacked/hpcomm/_core.*.so >"$out/needed.txt"
if grep -E 'NEEDED.*lib(mpi|python)|R(UN)?PATH.*\[/' "$out/needed.txt"; then
  echo "package: the wheel's extension needs an MPI, or names a path of this machine" >&2
  exit 1
fi

echo "package: install the wheel where no compiler is"
.venv/bin/python -c 'import sys, venv; venv.create(sys.argv[1], with_pip=True)' "$out/env"
for tool in sh env bash cat dirname uname; do ln -s "$(command -v "$tool")" "$out/tools/$tool"; done
cd "$out" # nothing of the source tree may be found by accident
export PATH=$out/env/bin:$out/tools
unset PYTHONPATH
for compiler in cc c++ gcc g++ clang clang++ cmake ninja make; do
  if command -v "$compiler" >/dev/null; then echo "package: $compiler is still on PATH" >&2; exit 1; fi
done
python -m pip install -q --no-compile --disable-pip-version-check "$wheel[mpich,keras,data,plot]"
python -m compileall -q -j 0 "$out"/env/lib/python3*/site-packages >"$out/compileall.log" || true
python - "$out/env" <<'PY'
import sys
import hpcomm
assert hpcomm.__file__.startswith(sys.argv[1]), hpcomm.__file__
PY

echo "package: train with the wheel"
hpcomm train -n 2 --model resnet20-v1 --dataset digits --strategy model --partitions 2 --epochs 1 --json train.json
python - <<'PY'
import json
from pathlib import Path
report = json.loads(Path("train.json").read_text())
epoch = report["epochs"][-1]
assert report["world_size"] == 2 and epoch["val_accuracy"] > 0.2, report
print(f"package: wheel trained, validation accuracy {epoch['val_accuracy']:.3f} after one epoch")
PY
