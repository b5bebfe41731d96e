import os

import pytest

from muster import MusterError
from muster.base import durable
from muster.privacy.account import FILE, Account, count_early


def test_a_charge_is_on_disk_before_it_returns(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(durable.os, "fsync", lambda fd: (synced.append(fd), real(fd)))
    account = Account.open(tmp_path, resume=False, noise=1.5)
    account.charge(0)
    assert len(synced) == 2  # the file, and the folder that now lists it
    assert (tmp_path / FILE).read_text() == '{"round": 0, "noise": 1.5}\n'
    account.charge(1)
    assert len(synced) == 3
    assert Account.open(tmp_path, resume=True, noise=1.5).charged == [0, 1]


def test_a_line_that_was_cut_off_counts_and_the_next_is_a_line_again(tmp_path):
    (tmp_path / FILE).write_text('{"round": 0}\n{"rou')
    account = Account.open(tmp_path, resume=True, noise=1.5)
    assert len(account.charged) == 2
    assert count_early(account.charged, 5) == 1  # as late as can be: it costs everyone
    account.charge(1)
    assert len(Account.open(tmp_path, resume=True, noise=1.5).charged) == 3
    assert account.count_since(1) == 2


@pytest.mark.parametrize("line", ['{"round": 1e400}', "[" * 100_000, "null", '{"round": "x"}'])
def test_a_line_that_nobody_can_read_counts(tmp_path, line):
    (tmp_path / FILE).write_text(f'{{"round": 0}}\n{line}\n')
    charged = Account.open(tmp_path, resume=True, noise=1.5).charged
    assert len(charged) == 2
    assert count_early(charged, 5) == 1


def test_what_was_released_is_not_forgotten_by_starting_again(tmp_path):
    Account.open(tmp_path, resume=False, noise=1.5).charge(0)
    with pytest.raises(MusterError, match="1 releases are charged there; resume the run"):
        Account.open(tmp_path, resume=False, noise=1.5)


def test_without_a_folder_the_account_is_in_memory():
    account = Account.open(None, resume=False, noise=1.5)
    account.charge(3)
    assert account.charged == [3]


def test_releases_with_other_noise_are_not_accounted_for_as_if_they_had_this(tmp_path):
    Account.open(tmp_path, resume=False, noise=0.1).charge(0)
    with pytest.raises(MusterError, match=r"noise 0\.1 are charged there, and this run has 8;"):
        Account.open(tmp_path, resume=True, noise=8.0)
    (tmp_path / FILE).write_text('{"round": 0}\n7\n')  # of versions before; and damaged
    assert len(Account.open(tmp_path, resume=True, noise=8.0).charged) == 2
