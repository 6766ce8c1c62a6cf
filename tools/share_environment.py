"""Make everything installed in one virtual environment visible in another one.

The second environment keeps what it has of its own (another MPI and its mpi4py, found first) and
sees the frameworks, tools and the editable hpcomm of the first without a second copy on disk.

Usage: python tools/share_environment.py FROM TO
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

# Started by /bin/sh, since a path with spaces cannot stand in a `#!` line.
SCRIPT = """#!/bin/sh
'''exec' "$(dirname "$0")/python" "$0" "$@"
' '''
import sys

from hpcomm.cli.main import main

sys.exit(main())
"""


def site_packages(environment: Path) -> Path:
    """Return the folder of the pure Python packages of a virtual environment.

    Args:
        environment: folder of a virtual environment made by the running Python's version.
    """
    variables = {"base": str(environment.resolve()), "platbase": str(environment.resolve())}
    return Path(sysconfig.get_path("purelib", scheme="venv", vars=variables))


def share(source: Path, target: Path) -> None:
    """Write the path file and the ``hpcomm`` script into ``target``.

    Args:
        source: virtual environment to see.
        target: virtual environment that shall see it.
    """
    link = site_packages(target) / "zz_shared.pth"
    link.write_text(f"import site; site.addsitedir({str(site_packages(source))!r})\n")
    script = target / "bin" / "hpcomm"
    script.write_text(SCRIPT)
    script.chmod(0o755)


if __name__ == "__main__":
    share(Path(sys.argv[1]), Path(sys.argv[2]))
