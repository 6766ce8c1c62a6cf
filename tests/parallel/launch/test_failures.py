"""What `hpcomm run` does about ranks that fail, with this environment's MPI and without MPI."""

from __future__ import annotations

import re
import signal

import pytest
from support.jobs import Job, hpcomm_run, marked_processes, program, run

from hpcomm.launch import mpiexec

WAYS = pytest.mark.parametrize("options", [(), ("--no-mpi",)], ids=["mpi", "no-mpi"])

# One rank ends in some way while the other waits for it.
VICTIM = """
comm = hpcomm.init()
comm.barrier()
if comm.rank == 1:
    {end}
    time.sleep(60)
started_s = time.monotonic()
try:
    comm.allreduce(np.zeros(100))
except hpcomm.TransportError as error:
    print(f"survivor: {{type(error).__name__}}({{error.rank}}) after "
          f"{{time.monotonic() - started_s:.3f}} s", flush=True)
    {then}
"""
ENDS = {
    "SIGKILL": ("os.kill(os.getpid(), 9)", 137, "PeerDiedError", "was killed by SIGKILL"),
    "SIGSEGV": ("os.kill(os.getpid(), 11)", 139, "PeerDiedError", "was killed by SIGSEGV"),
    "exit": ("sys.exit(7)", 7, "PeerAbortedError", "ended with exit code 7"),
    "_exit": ("os._exit(9)", 9, "PeerDiedError", "ended with exit code 9"),
    "exception": ("raise KeyError('lost')", 1, "PeerAbortedError", "failed with KeyError: 'lost'"),
}


@WAYS
@pytest.mark.parametrize("end", list(ENDS))
def test_survivor_learns_within_two_seconds_who_failed_mlx_4060(tmp_path, end, options):
    statement, code, error, report = ENDS[end]
    path = program(tmp_path, VICTIM.format(end=statement, then="pass"))
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    assert result.code == code, result.errors
    told = re.search(r"survivor: (\w+)\((-?\d+)\) after ([\d.]+) s", result.output)
    assert told, result.output + result.errors
    assert told[1] == error
    assert told[2] == "1"
    assert float(told[3]) < 2
    assert "rank 1 of 2 on" in result.errors
    assert report in result.errors
    assert result.errors.count("Traceback") == (end == "exception")
    result.assert_nothing_is_left()


# Rank 1 ends while rank 0 waits for it and rank 2 for rank 0: on the communicator that fails first,
# on one whose block rank 0 leaves because of that, and on one that the lost rank is no member of
# and that is open when the error ends rank 0.
CHAIN = """
comm = hpcomm.init()
other = comm.dup("other")
pair = comm.split(comm.rank % 2)
comm.barrier()
if comm.rank == 1:
    {end}
started_s = time.monotonic()
def survive(name, wait):
    try:
        wait()
    except hpcomm.TransportError as error:
        after_s = time.monotonic() - started_s
        kind = type(error).__name__
        line = f"rank {{comm.rank}} on {{name}} after {{after_s:.3f}} s: {{kind}}({{error.rank}}): "
        os.write(1, (line + str(error) + "\\n").encode())
        if comm.rank == 0:
            raise
def wait_and_leave():
    with other:
        comm.recv(1, dtype="int8")
if comm.rank == 0:
    survive("world", wait_and_leave)
else:
    survive("world", lambda: comm.recv(0, dtype="int8"))
    survive("other", lambda: other.recv(0, dtype="int8"))
    survive("pair", lambda: pair.recv(0, dtype="int8"))
"""


@pytest.mark.parametrize(
    ("options", "environment"),
    [((), {}), (("--no-mpi",), {}), ((), {"HPCOMM_RANKS_PER_NODE": "1"})],
    ids=["mpi", "no-mpi", "nodes"],
)
@pytest.mark.parametrize("end", ["SIGKILL", "exception"])
def test_survivors_that_wait_for_survivors_learn_what_happened(tmp_path, end, options, environment):
    statement, code, error, _ = ENDS[end]
    path = program(tmp_path, CHAIN.format(end=statement))
    result = run(tmp_path, hpcomm_run(3, path, options=options), environment)
    assert result.code == code, result.errors
    pattern = r"rank (\d) on (\w+) after ([\d.]+) s: (\w+)\((-?\d+)\): (.*)"
    told = {(found[0], found[1]): found[2:] for found in re.findall(pattern, result.output)}
    culprits = {("0", "world"): {1}, ("2", "world"): {1}}
    if error == "PeerDiedError":
        culprits |= {("2", "other"): {1}, ("2", "pair"): {-1}}
    else:  # on "other" it depends on who is faster: rank 1 tells one communicator after the other
        culprits |= {("2", "other"): {0, 1}, ("2", "pair"): {0}}
    assert told.keys() == culprits.keys(), result.output + result.errors
    for place, (after_s, kind, culprit, text) in told.items():
        assert kind == error, f"{place}: {text}"
        assert int(culprit) in culprits[place], f"{place}: {text}"
        assert ("died" if error == "PeerDiedError" else "KeyError: 'lost'") in text
        assert float(after_s) < 2, f"{place}: {text}"
    result.assert_nothing_is_left()


@WAYS
def test_uncaught_errors_of_survivors_do_not_hide_the_first_failure(tmp_path, options):
    path = program(tmp_path, VICTIM.format(end="raise ValueError('the cause')", then="raise"))
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    assert result.code == 1
    assert result.errors.count("Traceback") == 1
    assert "rank 1 of 2" in result.errors
    assert "ValueError: the cause" in result.errors
    assert "also rank 0 failed with PeerAbortedError" in result.errors
    result.assert_nothing_is_left()


@WAYS
def test_standard_output_of_a_failed_job_holds_nothing_of_the_launcher(tmp_path, options):
    path = program(tmp_path, "hpcomm.init().barrier()\nraise ValueError('alike')\n")
    for _ in range(6):  # supervisors never leave at quite the same time
        result = run(tmp_path, hpcomm_run(4, path, options=options))
        assert (result.code, result.output) == (1, "")
        assert result.errors.count("Traceback") == 1
        result.assert_nothing_is_left()


def test_a_killed_supervisor_ends_the_job_under_hydra(tmp_path):
    launcher = mpiexec.find()
    if launcher is None or "hydra" not in launcher.version.lower():
        pytest.skip("what another launcher does then is its own affair")
    path = program(  # without MPI, whose files nobody would be left to delete
        tmp_path,
        "from hpcomm.launch import environment\n"
        "if environment.place(os.environ)[0] == 1:\n    os.kill(os.getppid(), 9)\n"
        "time.sleep(120)\n",
    )
    result = run(tmp_path, hpcomm_run(3, path))
    assert result.code != 0
    assert result.seconds < 25
    assert "BAD TERMINATION" not in result.output
    assert not marked_processes(result.mark)


@WAYS
def test_survivors_that_do_not_stop_are_ended_after_the_grace_period(tmp_path, options):
    path = program(
        tmp_path,
        "import signal, subprocess\n"
        "comm = hpcomm.init()\n"
        "if comm.rank == 0:\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    subprocess.Popen(['sleep', '300'])\n"
        "comm.barrier()\n"
        "if comm.rank == 1:\n    os._exit(4)\n"
        "time.sleep(120)\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=("--grace", "0.5", *options)))
    assert result.code == 4, result.errors
    assert result.seconds < 25
    assert "rank 0 had to be ended" in result.errors
    result.assert_nothing_is_left()


@WAYS
def test_a_rank_that_fails_before_the_others_have_met_it(tmp_path, options):
    path = program(
        tmp_path,
        "from hpcomm.launch import environment\n"
        "if environment.place(os.environ)[0] == 1:\n    raise SystemExit(6)\n"
        "hpcomm.init()\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=("--grace", "1", *options)))
    assert result.code == 6, result.errors
    # Some MPIs wait in MPI_Init, where nothing can be raised.
    ways = ("failed before all ranks had met", "rank 0 had to be ended")
    assert any(way in result.errors for way in ways)
    result.assert_nothing_is_left()


@WAYS
def test_programs_that_cannot_start(tmp_path, options):
    line = hpcomm_run(2, tmp_path, options=options)
    result = run(tmp_path, [*line[: line.index("--")], "--", "/no/such/program"])
    assert result.code == 127
    assert "could not start" in result.errors
    assert "/no/such/program" in result.errors
    result.assert_nothing_is_left()


@WAYS
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_launcher_end_everything_mpi4py_522(tmp_path, options, number):
    path = program(
        tmp_path,
        "comm = hpcomm.init()\n"
        "try:\n"
        "    comm.barrier()\n"
        "    if comm.rank == 1:\n        print('ready', flush=True)\n        time.sleep(120)\n"
        "    comm.recv(1, dtype='int8')\n"
        "finally:\n    if comm.rank == 0:\n        print('cleaned up', flush=True)\n",
    )
    with Job(tmp_path, hpcomm_run(2, path, options=options)) as job:
        job.wait_for("ready")
        job.send_signal(number)
        result = job.finish(30)
    assert result.code == 128 + number
    if number == signal.SIGINT:
        assert "cleaned up" in result.output
    assert "Traceback" not in result.errors
    result.assert_nothing_is_left()


@WAYS
def test_ctrl_c_in_a_blocked_wait_is_a_keyboard_interrupt_ucx_py_250(tmp_path, options):
    path = program(
        tmp_path,
        """
import signal, threading
comm = hpcomm.init()
comm.barrier()
if comm.rank == 1:
    got = comm.recv_object(0)
    sys.exit(0)
calls = {
    "recv": lambda c: c.recv(1, dtype="int8"),
    "allreduce": lambda c: c.allreduce(np.zeros(9)),
    "wait": lambda c: c.irecv(1, shape=1, dtype="int8").wait(),
    "async": lambda c: c.allreduce(np.zeros(9), asynchronous=True).wait(),
}
""",
    )
    text = path.read_text().replace(
        "if comm.rank == 1:\n    got",
        "groups = [comm.dup() for _ in range(4)]\nif comm.rank == 1:\n    got",
    )
    path.write_text(
        text
        + """
for group, (name, call) in zip(groups, calls.items()):
    sent = []
    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.3, interrupt).start()
    try:
        call(group)
    except KeyboardInterrupt:
        print(f"{name} after {time.monotonic() - sent[0]:.3f} s", flush=True)
comm.send_object("over", 1)
print("handlers", flush=True)
"""
    )
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    delays = [float(found) for found in re.findall(r"after ([\d.]+) s", result.output)]
    assert len(delays) == 4, result.output + result.errors
    assert max(delays) < 1
    assert "handlers" in result.output
    result.assert_nothing_is_left()


@WAYS
def test_a_killed_launcher_takes_its_ranks_along(tmp_path, options):
    path = program(tmp_path, "comm = hpcomm.init()\nprint('ready', flush=True)\ntime.sleep(120)\n")
    with Job(tmp_path, hpcomm_run(2, path, options=options)) as job:
        job.wait_for("ready")
        job.send_signal(signal.SIGKILL)
        result = job.finish(30)
    assert result.code == -signal.SIGKILL
    result.assert_nothing_is_left()


@WAYS
@pytest.mark.parametrize("first", ["import mpi4py.MPI\n", ""], ids=["mpi4py first", "ours"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_leaves_early_does_not_wait_for_the_others(tmp_path, options, first, code):
    if first and options:
        pytest.skip("MPI would be initialised in ranks without MPI")
    path = program(
        tmp_path,
        first + "comm = hpcomm.init()\ncomm.barrier()\n"
        f"if comm.rank == 1:\n    sys.exit({code})\n"
        "while True:\n    comm.allreduce(np.ones(9))\n",
    )
    result = run(tmp_path, hpcomm_run(2, path, options=options))
    assert result.code == (code or 1), result.errors
    assert result.seconds < 9, "somebody waited for the grace period"
    culprit = "rank 1 of 2" if code else "rank 0 of 2"
    assert culprit in result.errors
    assert "had to be ended" not in result.errors
    result.assert_nothing_is_left()


@pytest.mark.parametrize("end", ["SIGKILL", "exception", "_exit"])
def test_survivors_on_other_nodes_learn_it_from_the_supervisors(tmp_path, end):
    statement, code, error, _ = ENDS[end]
    path = program(
        tmp_path,
        VICTIM.format(end=statement, then="pass")
        .replace("comm = hpcomm.init()", "world = hpcomm.init()\ncomm = world.dup()")
        .replace("comm.barrier()", "assert comm.num_nodes == 2\ncomm.barrier()"),
    )
    result = run(tmp_path, hpcomm_run(2, path), {"HPCOMM_RANKS_PER_NODE": "1"})
    assert result.code == code, result.errors
    told = re.search(r"survivor: (\w+)\(1\) after ([\d.]+) s", result.output)
    assert told, result.output + result.errors
    assert told[1] == error
    assert float(told[2]) < 2
    result.assert_nothing_is_left()
