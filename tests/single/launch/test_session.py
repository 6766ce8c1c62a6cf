from __future__ import annotations

import os
import threading

from hpcomm.launch import report
from hpcomm.launch.session import Failure, Session


def failure(rank, **more):
    return Failure(rank=rank, host="here", pid=1, exit_code=3, **more)


def test_first_failure_wins_among_many_threads(tmp_path):
    session = Session.create(tmp_path)
    won = []
    gate = threading.Barrier(8)

    def claim(rank):
        gate.wait()
        if session.claim(failure(rank)):
            won.append(rank)

    threads = [threading.Thread(target=claim, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert session.first_failure() == failure(won[0])
    assert not [path for path in session.path.iterdir() if path.name.startswith(".")]


def test_secondary_errors_claim_nothing(tmp_path):
    session = Session.create(tmp_path)
    assert session.note_exception(failure(0, secondary=True, error="PeerDiedError: 1"))
    assert session.first_failure() is None
    assert session.note_exception(failure(1, error="ValueError: x", traceback="Traceback"))
    assert session.first_failure().rank == 1
    assert session.exception_of(0).secondary


def test_ends_come_in_the_order_of_time(tmp_path):
    session = Session.create(tmp_path)
    for rank, at_s in ((2, 5.0), (0, 7.0), (1, 6.0)):
        session.note_end(failure(rank, at_s=at_s))
    assert [end.rank for end in session.ends()] == [2, 1, 0]
    session.note_done(0)
    session.note_done(1)
    assert session.num_done() == 2


def test_stop_and_owner(tmp_path):
    session = Session.create(tmp_path)
    assert session.launcher()[0] == os.getpid()
    assert session.is_read()
    assert not Session.create(tmp_path, is_read=False).is_read()
    assert session.stop_signal() == 0
    session.ask_to_stop(2)
    session.ask_to_stop(15)
    assert session.stop_signal() == 2


def test_leftovers_of_this_machine_are_deleted(tmp_path):
    session = Session.create(tmp_path)
    left = tmp_path / "mpich_shm_1"
    left.touch()
    session.note_leftovers("rank0", [str(left), str(tmp_path / "gone")])
    session.remove_leftovers()
    assert not left.exists()
    session.remove()
    assert not session.path.exists()


def test_a_folder_that_is_gone_answers_nothing(tmp_path):
    session = Session(tmp_path / "gone")
    assert not session.claim(failure(0))
    assert session.first_failure() is None
    assert session.ends() == []
    assert session.num_done() == 0
    assert session.launcher() == (0, "")


def test_outside_of_a_job_there_is_no_session(monkeypatch, tmp_path):
    monkeypatch.delenv("HPCOMM_SESSION", raising=False)
    assert Session.of_environment() is None
    monkeypatch.setenv("HPCOMM_SESSION", str(tmp_path / "gone"))
    assert Session.of_environment() is None


def test_report_says_who_how_and_what_now():
    killed = failure(1, signal=9)
    assert "rank 1 of 4 on here (process 1) was killed by SIGKILL" in report.first_failure(
        killed, 4, 10
    )
    assert "10 s to finish" in report.first_failure(killed, 4, 10)
    assert "to finish" not in report.first_failure(killed, 1, 10)
    raised = failure(0, error="ValueError: x\nmore", traceback="Traceback\nValueError: x")
    assert "failed with ValueError: x\nTraceback" in report.first_failure(raised, 2, 10)
    refused = failure(0, error="NonFiniteLossError: the loss\nis nan")
    first = report.first_failure(refused, 1, 10)
    assert first.endswith("(process 1) ended with NonFiniteLossError: the loss\nis nan")
    for code in (126, 127):
        absent = Failure(0, "here", 0, code, error="cannot start 'a'")
        assert "on here could not start: cannot start 'a'" in report.first_failure(absent, 1, 10)
    last = report.others(killed, [killed, failure(3, told=True), failure(2)], 137)
    assert last.endswith("137; also rank 2 ended with exit code 3, rank 3 had to be ended")


def test_an_error_of_many_ranks_is_told_once():
    same = [failure(rank, error="ModelError: long\nand longer") for rank in range(4)]
    last = report.others(same[2], same, 1)
    assert last.endswith("exit code 1; also ranks 0, 1, 3, with the same error")
    assert report.others(same[0], same[:2], 1).endswith("; also rank 1, with the same error")
    assert report.others(same[0], same[:1], 1).endswith("exit code 1")
    lost = [failure(rank, error="PeerAbortedError: 2", traceback="T") for rank in (0, 3)]
    last = report.others(same[2], [*lost, *same[1:3], failure(4)], 1)
    assert last.endswith(
        "also rank 1, with the same error, ranks 0, 3 failed with PeerAbortedError: 2, "
        "rank 4 ended with exit code 3"
    )
    last = report.others(same[2], [failure(5, error="ValueError: a\nb")], 1)
    assert last.endswith("also rank 5 ended with ValueError: a")
    plain = [failure(rank) for rank in range(3)]
    assert report.others(plain[0], plain, 3).endswith("also ranks 1, 2, in the same way")
