"""`python -m hpcomm` is the command `hpcomm`."""

from __future__ import annotations

from hpcomm.cli.main import main

if __name__ == "__main__":
    main()
