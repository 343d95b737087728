"""Channels and frames of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import InvalidInputError, PrivacyError
from panda_mdp.meaning.exchange import from_privkit, from_qif, study_qif, to_privkit, to_qif


def test_a_channel_of_libqif_comes_and_goes():
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install qif")
    domain = random_domain("haversine", 9, seed=6)
    problem = displacement_problem(domain, range(9), 0.5)
    table = pm.exponential(problem)
    prior, channel = to_qif(table)
    assert qif.measure.bayes_vuln.posterior(prior, channel) == pytest.approx(
        pm.attack(table).vulnerability, rel=1e-12
    )
    apart = domain.distances()
    theirs = qif.mechanism.d_privacy.exponential(9, lambda x, y: 0.5 * apart[x, y], 9)
    mine = from_qif(problem, theirs)
    assert mine.audit.holds
    assert mine.matrix == pytest.approx(table.matrix, abs=1e-12)


def test_a_foreign_channel_is_never_taken_on_trust():
    problem = displacement_problem(random_domain("haversine", 4), range(4), 0.5)
    with pytest.raises(PrivacyError):
        from_qif(problem, np.eye(4))
    assert not study_qif(problem, np.eye(4)).audit.holds


def test_frames_of_privkit():
    pytest.importorskip("pandas", reason="privkit's data are pandas frames: pip install pandas")
    domain = random_domain("haversine", 20, seed=7)
    records, reports = [3, 3, 7], [0, 5, 7]
    frame = to_privkit(domain, records, reports)
    assert list(frame.columns) == ["lat", "lon", "obf_lat", "obf_lon"]
    assert from_privkit(domain, frame).tolist() == records
    frame["lat"] += 1.0
    with pytest.raises(InvalidInputError, match="3 of 3 rows"):
        from_privkit(domain, frame)
    with pytest.raises(InvalidInputError, match="3 records and 2 reports"):
        to_privkit(domain, records, reports[:2])
