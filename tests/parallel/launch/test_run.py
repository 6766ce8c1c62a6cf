"""What `hpcomm run` promises about ranks that are well."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.jobs import Job, hpcomm_run, program, run

WAYS = pytest.mark.parametrize("options", [(), ("--no-mpi",)], ids=["mpi", "no-mpi"])


@WAYS
@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_meet_and_exit_code_is_zero(tmp_path, options, ranks):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "assert comm.allreduce(np.ones(1))[0] == comm.size\n"
        "sys.stdout.write(f'rank {comm.rank} of {comm.size} {sys.argv[1:]}\\n')\n",
    )
    result = run(tmp_path, hpcomm_run(ranks, path, "-n", "x y", "--help", options=options))
    assert result.code == 0, result.errors
    lines = sorted(line for line in result.output.splitlines() if line)
    assert lines == [f"rank {r} of {ranks} ['-n', 'x y', '--help']" for r in range(ranks)]
    result.assert_nothing_is_left()


@WAYS
def test_ranks_get_cpus_and_threads_of_their_own(tmp_path, options):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "mine = sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS']\n"
        "found = comm.allgather_object(mine)\n"
        "if comm.rank == 0:\n    import json; print(json.dumps(found))\n",
    )
    allowed = sorted(os.sched_getaffinity(0))
    for bind in ("", "core", "numa"):
        chosen = ("--bind", bind) if bind else ()
        result = run(tmp_path, hpcomm_run(2, path, options=(*options, *chosen)))
        (first, threads), (second, _) = json.loads(result.output)
        assert not set(first) & set(second)
        assert sorted(first + second) == allowed
        assert int(threads) == len(first)
        assert result.errors.count("of their own each") == 1
    result = run(tmp_path, hpcomm_run(2, path, options=("--bind", "none", *options)))
    assert [cpus for cpus, _ in json.loads(result.output)] == [allowed] * 2
    result = run(tmp_path, hpcomm_run(2, path, options=options), {"OMP_NUM_THREADS": "5"})
    assert json.loads(result.output)[0][1] == "5"
    many = len(allowed) + 1
    result = run(tmp_path, hpcomm_run(many, path, options=options))
    assert [cpus for cpus, _ in json.loads(result.output)] == [allowed] * many
    assert "--bind none" in result.errors


@WAYS
def test_lines_are_labelled_and_complete(tmp_path, options):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "for i in range(2000):\n    sys.stdout.write(f'out {comm.rank} {i}\\n')\n"
        "print('err', comm.rank, file=sys.stderr)\n"
        "sys.stdout.write('no newline')\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=("--prefix", *options)))
    assert result.code == 0
    for rank in range(2):
        wanted = [f"[{rank}] out {rank} {i}" for i in range(2000)] + [f"[{rank}] no newline"]
        assert [
            line for line in result.output.splitlines() if line.startswith(f"[{rank}]")
        ] == wanted
        assert f"[{rank}] err {rank}\n" in result.errors


@WAYS
def test_memory_is_limited(tmp_path, options):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "try:\n    np.ones(1 << 28)\n"
        "except MemoryError:\n    print('limited', flush=True)\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=("--memory", "1G", *options)))
    assert result.code == 0, result.errors
    assert result.output.count("limited") == 2


@WAYS
def test_the_job_may_take_so_long_and_no_longer(tmp_path, options):
    path = program(tmp_path, "hpcomm.init()\ntime.sleep(100)\n")
    result = run(tmp_path, hpcomm_run(2, path, options=("--timeout", "3", *options)))
    assert result.code == 124
    assert "more than 3 s" in result.errors
    result.assert_nothing_is_left()


@WAYS
def test_standard_input_goes_to_rank_zero(tmp_path, options):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "text = sys.stdin.read()\n"
        "assert comm.rank == 0 or not text\n"
        "print(comm.broadcast_object(text).strip(), flush=True)\n",
    )
    answer = subprocess.run(
        hpcomm_run(2, path, options=options),
        input="hello ranks\n",
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ.copy(),
        check=True,
    )
    assert answer.stdout.count("hello ranks") == 2


def test_programs_of_one_rank_one_after_another(tmp_path):
    path = program(tmp_path, "comm = hpcomm.init()\ncomm.barrier()\nprint('done', flush=True)\n")
    line = hpcomm_run(2, path, options=("--no-mpi",))
    shell = ["/bin/sh", "-c", f"{sys.executable} {path} && {sys.executable} {path}"]
    result = run(tmp_path, [*line[: line.index("--") + 1], *shell])
    assert result.code == 0, result.errors
    assert result.output.count("done") == 4


@WAYS
def test_what_a_rank_leaves_running_is_ended(tmp_path, options):
    path = program(
        tmp_path,
        "import subprocess\nhpcomm.init().barrier()\n"
        "subprocess.Popen(['sleep', '300'], stdin=-3, stdout=-3, stderr=-3)\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    assert result.code == 0
    result.assert_nothing_is_left()


WRONG = {
    "no command": ["-n", "2"],
    "no ranks": ["-n", "0", "--", "true"],
    "no number": ["-n", "two", "--", "true"],
    "no policy": ["-n", "2", "--bind", "socket", "--", "true"],
    "no size": ["-n", "2", "--memory", "much", "--", "true"],
    "hosts without MPI": ["-n", "2", "--no-mpi", "--hosts", "a", "--", "true"],
    "both": ["-n", "2", "--hosts", "a", "--hostfile", "b", "--", "true"],
    "no such option": ["-n", "2", "--frobnicate", "--", "true"],
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_usage_exits_with_2(tmp_path, case):
    result = run(tmp_path, [sys.executable, "-m", "hpcomm", "run", *WRONG[case]])
    assert result.code == 2, result.errors
    assert "Traceback" not in result.errors


def test_sub_commands_start_their_own_ranks(tmp_path):
    path = program(
        tmp_path,
        "from hpcomm.launch import relaunch_under, under_launcher\n"
        "assert not under_launcher()\n"
        "code = relaunch_under(2, ['info', '--json', '-'], quiet=True)\n"
        "print('code', code)\n",
    )
    with Job(tmp_path, [sys.executable, str(path)]) as job:
        result = job.finish()
    text, _, rest = result.output.rpartition("code")
    assert rest.strip() == "0", result.errors
    report = json.loads(text)
    assert report["job"]["size"] == 2
    assert [rank["rank"] for rank in report["job"]["ranks"]] == [0, 1]
    assert report["job"]["ranks"][0]["transports"] == {"1": "shm"}
    assert [row["name"] for row in report["transports"] if row["in_use"]] == ["shm"]
    assert {row["name"] for row in report["variables"]} >= {"HPCOMM_TIMEOUT", "HPCOMM_TUNE"}
    result.assert_nothing_is_left()


def test_a_rank_does_not_start_ranks(tmp_path):
    path = program(
        tmp_path,
        "from hpcomm.launch import relaunch_under\nhpcomm.init()\n"
        "try:\n    relaunch_under(2, ['info'])\n"
        "except hpcomm.LaunchError as error:\n    print('refused', error, flush=True)\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=("--no-mpi",)))
    assert result.output.count("refused") == 2


def test_named_hosts_take_the_way_over_the_launcher_of_mpi(tmp_path):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "if comm.rank == 1 and sys.argv[1:]:\n    sys.exit(7)\n"
        "sys.stdout.write(f'sum {comm.allreduce(np.ones(1))[0]}\\n')\n",
    )
    options = ("--hosts", "localhost,localhost")
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    assert result.code == 0, result.errors
    assert result.output.count("sum 2.0") == 2
    assert result.errors.count("of their own each") == 1
    result.assert_nothing_is_left()
    assert run(tmp_path, hpcomm_run(2, path, "fail", options=options)).code == 7
    assert not list(tmp_path.glob("hpcomm-*"))


def test_supervisors_of_machines_without_the_folder_pass_on_code_and_traceback(tmp_path):
    path = program(tmp_path, "hpcomm.init()\nraise ValueError('far away')\n")
    supervisor = [sys.executable, "-m", "hpcomm.launch.supervisor", "--session", "/no/where"]
    line = [*supervisor, "--grace", "1", "--", sys.executable, str(path)]
    result = run(tmp_path, line)
    assert result.code == 1
    assert "ValueError: far away" in result.errors
    result.assert_nothing_is_left()


@WAYS
def test_ranks_leave_without_a_warning(tmp_path, options):
    path = program(tmp_path, "hpcomm.init().dup().allreduce(np.ones(3), asynchronous=True)\n")
    line = hpcomm_run(2, path, options=options)
    result = run(tmp_path, [*line[:-1], "-X", "dev", "-W", "error", line[-1]])
    assert result.code == 0
    assert "Warning" not in result.errors, result.errors
