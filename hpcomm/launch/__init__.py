"""Starting ranks: what `hpcomm run` does, and what other commands use to start their own ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm.launch.environment import under_launcher

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["relaunch_under", "under_launcher"]


def relaunch_under(num_ranks: int, arguments: Sequence[str], **options: Any) -> int:
    """Run ``hpcomm ARGUMENTS`` as ``num_ranks`` ranks and return the exit code of the job.

    For sub-commands with ``-n N`` that were not started under a launcher; the ranks are, so that
    they do not start ranks again.

    Args:
        num_ranks: number of ranks, >= 1.
        arguments: of the command line, without the program: ``["train", "--model", "mlp"]``.
        options: further fields of `hpcomm.launch.job.Options`, such as ``memory_bytes``.

    Returns:
        0 if all ranks ended well, else the exit code of the first failure.

    Raises:
        LaunchError: the ranks could not be started, or this process is a rank itself.
        SystemExit: this process was told to end by a signal; with 128 + signal.
    """
    import sys

    from hpcomm.errors import LaunchError
    from hpcomm.launch.job import Job, Options

    if under_launcher():
        raise LaunchError(
            "this process is a rank of a launcher already and cannot start ranks of its own; "
            "leave -n away"
        )
    command = [sys.executable, "-m", "hpcomm", *arguments]
    job = Job(Options(num_ranks=num_ranks, command=command, **options))
    code = job.run()
    if job.asked:
        sys.exit(code)  # a rank may end with the same code by itself, which callers treat otherwise
    return code
