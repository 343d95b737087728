"""Mechanisms are their guarantee; what has none can be neither sampled nor saved."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, NoGuarantee, Problem, Simulation, audit, exponential
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL

DOMAIN = Domain.from_vectors([[0.0], [1.0], [2.0]])
PROBLEM = Problem(DOMAIN, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
PRIVATE = np.array([[0.7, 0.3], [0.5, 0.5], [0.3, 0.7]])
LEAKY = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])


def test_from_matrix_quantises_and_audits():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE, method="by hand", lower_bound=0.5)
    assert (mechanism.weights.sum(axis=1) == TOTAL).all()
    np.testing.assert_allclose(mechanism.matrix, PRIVATE, rtol=1e-15)
    assert mechanism.audit.holds
    assert mechanism.audit.epsilon == pytest.approx(np.log(0.5 / 0.3), rel=1e-11)
    assert mechanism.loss == pytest.approx((0.6 + 1 + 0.6) / 3)
    assert mechanism.gap == pytest.approx(mechanism.loss / 0.5 - 1)
    assert mechanism.epsilon == 1.0
    assert "by hand" in repr(mechanism)
    assert "lower bound 0.5" in repr(mechanism)


def test_constructor_refuses_what_is_not_private():
    with pytest.raises(PrivacyError, match=r"not 1-mDP.*epsilon 1\.609.*records 1 and 0, output 2"):
        Mechanism.from_matrix(PROBLEM, LEAKY)


def test_constructor_refuses_a_borrowed_audit():
    honest = Mechanism.from_matrix(PROBLEM, PRIVATE)
    leaky = NoGuarantee.from_matrix(PROBLEM, LEAKY)
    with pytest.raises(PrivacyError, match="another table"):
        Mechanism(PROBLEM, leaky.weights, "borrowed", honest.audit)
    with pytest.raises(PrivacyError, match="another table or epsilon"):
        replace(honest, problem=PROBLEM.with_epsilon(0.1))
    stretched = Problem(Domain.from_vectors([[0.0], [0.1], [0.2]]), [0, 2], PROBLEM.loss, 1.0)
    with pytest.raises(PrivacyError, match="another table"):
        replace(honest, problem=stretched)
    with pytest.raises(PrivacyError, match="another table"):
        replace(honest, audit=replace(honest.audit, subject=""))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full((3, 2), 5), "row 0 do not sum to 2"),
        (np.array([[TOTAL + 1, -1]] * 3), r"weights\[0, 1\] is negative"),
        (np.full((2, 2), TOTAL // 2), r"shape \(2, 2\)"),
        (np.full((3, 2), TOTAL / 2), "float64"),
    ],
)
def test_weights_are_checked(weights, words):
    result = Mechanism.from_matrix(PROBLEM, PRIVATE).audit
    with pytest.raises(PrivacyError, match=words):
        Mechanism(PROBLEM, weights, "by hand", result)
    with pytest.raises(PrivacyError, match=words):
        NoGuarantee(PROBLEM, weights, "by hand", result)


def test_sums_that_wrap_around_are_refused():
    domain = Domain.from_vectors(np.arange(5.0))
    problem = Problem(domain, np.arange(5), np.zeros((5, 5)), 1.0)
    weights = np.full((5, 5), TOTAL)
    assert (weights.sum(axis=1) == TOTAL).all(), "5 * 2^62 is 2^62 modulo 2^64"
    with pytest.raises(PrivacyError, match="row 0 do not sum"):
        NoGuarantee(problem, weights, "by hand", audit_weights(domain, np.arange(5), weights, 1.0))


def test_matrix_shape_is_checked():
    with pytest.raises(PrivacyError, match=r"shape \(2, 3\); this problem needs \(3, 2\)"):
        Mechanism.from_matrix(PROBLEM, PRIVATE.T)


def test_gap_without_bound_and_with_bound_zero():
    plain = Mechanism.from_matrix(PROBLEM, PRIVATE)
    assert plain.gap is None
    assert Mechanism.from_matrix(PROBLEM, PRIVATE, lower_bound=0.0).gap == np.inf
    assert Mechanism.from_matrix(PROBLEM, PRIVATE, lower_bound=9.0).gap == 0.0


def test_frozen_and_described():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE, stages=(("a", 1.0), ("b", 2.0)))
    assert mechanism.seconds == 3.0
    more = mechanism.with_details(rounds=4)
    assert more.details["rounds"] == 4
    assert "rounds" not in mechanism.details
    for array in (mechanism.weights, mechanism.matrix):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0
    with pytest.raises(FrozenInstanceError):
        mechanism.method = "other"
    with pytest.raises(TypeError):
        mechanism.details["x"] = 1


def test_caller_cannot_change_the_weights_afterwards():
    weights = Mechanism.from_matrix(PROBLEM, PRIVATE).weights.copy()
    result = audit_weights(DOMAIN, PROBLEM.outputs, weights, 1.0)
    mechanism = Mechanism(PROBLEM, weights, "by hand", result)
    weights[0] = [TOTAL, 0]
    assert mechanism.weights[0, 1] > 0


class TestSample:
    problem = displacement_problem(random_domain("haversine", 30), [4, 9, 28], 1.0)
    mechanism = exponential(problem)

    def test_returns_domain_indices(self):
        one = self.mechanism.sample(3)
        assert isinstance(one, int)
        assert one in (4, 9, 28)
        many = self.mechanism.sample(3, 200)
        assert many.shape == (200,)
        assert set(many) <= {4, 9, 28}
        assert self.mechanism.sample(3, 0).shape == (0,)

    def test_does_not_take_a_seed(self):
        assert list(inspect.signature(self.mechanism.sample).parameters) == ["record", "size"]

    def test_impossible_outputs_are_never_drawn(self):
        sure = NoGuarantee.from_matrix(PROBLEM, [[1, 0], [0.5, 0.5], [0, 1]])
        assert set(sure.simulate(0).sample(0, 1000)) == {0}
        assert set(sure.simulate(0).sample(2, 1000)) == {2}

    @pytest.mark.parametrize("record", [777123, -777123, 0.777123, "777123", None, True])
    def test_errors_never_show_the_record(self, record):
        for table in (self.mechanism, self.mechanism.simulate(1)):
            with pytest.raises(MethodError) as caught:
                table.sample(record)
            text = "".join(traceback.format_exception_only(caught.value))
            assert "777123" not in text
            assert "0..29" in text
            assert caught.value.__cause__ is None
            assert caught.value.__context__ is None

    def test_size_is_checked(self):
        with pytest.raises(MethodError, match="size is -1"):
            self.mechanism.sample(3, -1)

    def test_simulation_repeats_and_hides_its_seed(self):
        first, second = self.mechanism.simulate(424242), self.mechanism.simulate(424242)
        np.testing.assert_array_equal(first.sample(3, 100), second.sample(3, 100))
        assert "424242" not in repr(first) + repr(vars(first))
        assert "NOT FOR RELEASE" in repr(first)
        assert not first.for_release


class TestNotForRelease:
    table = NoGuarantee.from_matrix(PROBLEM, LEAKY, method="study")

    def test_says_so(self):
        assert "NO PRIVACY GUARANTEE" in repr(self.table)
        assert not self.table.audit.holds
        assert not audit(self.table).holds

    def test_refuses_sample_and_save(self, tmp_path):
        with pytest.raises(NotForReleaseError, match="simulate"):
            self.table.sample(0)
        with pytest.raises(NotForReleaseError, match="cannot be saved"):
            self.table.save(tmp_path / "x.pmdp")
        assert list(tmp_path.iterdir()) == []

    def test_simulation_refuses_save_but_draws(self, tmp_path):
        simulation = self.table.simulate(3)
        assert isinstance(simulation, Simulation)
        assert simulation.sample(0) in (0, 2)
        with pytest.raises(NotForReleaseError, match="seeded"):
            simulation.save(tmp_path / "x.pmdp")
        with pytest.raises(NotForReleaseError, match="seeded"):
            exponential(PROBLEM).simulate(3).save(tmp_path / "x.pmdp")
        assert list(tmp_path.iterdir()) == []
