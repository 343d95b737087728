"""Mechanisms are their guarantee; what has none can be neither sampled nor saved."""

from __future__ import annotations

import copy as copying
import inspect
import pickle
import traceback
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp import Domain, Mechanism, NoGuarantee, Outputs, Problem, audit, exponential
from panda_mdp.errors import MethodError, NotForReleaseError, PrivacyError, ProblemError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.table.bound import Stated
from panda_mdp.table.mechanism import Simulation

DOMAIN = Domain.from_vectors([[0.0], [1.0], [2.0]])
PROBLEM = Problem(DOMAIN, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
PRIVATE = np.array([[0.7, 0.3], [0.5, 0.5], [0.3, 0.7]])
LEAKY = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])


def test_from_matrix_quantises_and_audits():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE, method="by hand", bound=0.5)
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


def test_no_audit_is_accepted_from_outside():
    honest = Mechanism.from_matrix(PROBLEM, PRIVATE)
    leaky = NoGuarantee.from_matrix(PROBLEM, LEAKY)
    with pytest.raises(TypeError, match="audit"):
        Mechanism(PROBLEM, leaky.weights, "borrowed", audit=honest.audit)
    with pytest.raises(ValueError, match="audit"):
        replace(leaky, audit=honest.audit)
    with pytest.raises(PrivacyError, match=r"not 0\.1-mDP"):
        replace(honest, problem=PROBLEM.with_epsilon(0.1))
    stretched = Problem(Domain.from_vectors([[0.0], [0.1], [0.2]]), [0, 2], PROBLEM.loss, 1.0)
    with pytest.raises(PrivacyError, match="not 1-mDP"):
        replace(honest, problem=stretched)


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
    with pytest.raises(PrivacyError, match=words):
        Mechanism(PROBLEM, weights, "by hand")
    with pytest.raises(PrivacyError, match=words):
        NoGuarantee(PROBLEM, weights, "by hand")


def test_sums_that_wrap_around_are_refused():
    domain = Domain.from_vectors(np.arange(5.0))
    problem = Problem(domain, np.arange(5), np.zeros((5, 5)), 1.0)
    weights = np.full((5, 5), TOTAL)
    assert (weights.sum(axis=1) == TOTAL).all(), "5 * 2^62 is 2^62 modulo 2^64"
    with pytest.raises(PrivacyError, match="row 0 do not sum"):
        NoGuarantee(problem, weights, "by hand")


def test_matrix_shape_is_checked():
    with pytest.raises(PrivacyError, match=r"shape \(2, 3\); this problem needs \(3, 2\)"):
        Mechanism.from_matrix(PROBLEM, PRIVATE.T)


def test_gap_without_bound_and_with_bound_zero():
    plain = Mechanism.from_matrix(PROBLEM, PRIVATE)
    assert plain.gap is None
    assert Mechanism.from_matrix(PROBLEM, PRIVATE, bound=0.0).gap == np.inf
    exact = Mechanism.from_matrix(PROBLEM, PRIVATE, bound=plain.loss)
    assert exact.gap == 0.0


@pytest.mark.parametrize("bound", [9.0, np.inf, np.nan, 1e9])
def test_a_bound_above_the_loss_is_refused(bound):
    with pytest.raises(PrivacyError, match="lower bound"):
        Mechanism.from_matrix(PROBLEM, PRIVATE, bound=bound)
    with pytest.raises(PrivacyError, match="lower bound"):
        Mechanism.from_matrix(PROBLEM, PRIVATE).with_facts(bound=bound)


def test_a_bound_is_kept_replaced_or_taken_away():
    bounded = Mechanism.from_matrix(PROBLEM, PRIVATE, bound=0.0)
    assert bounded.with_facts(method="other").bound == Stated(0.0, "the caller")
    assert bounded.with_facts(bound=Stated(-1.0, "a file")).lower_bound == -1.0
    bare = bounded.with_facts(bound=None)
    assert bare.bound is None and bare.gap is None and bounded.lower_bound == 0.0


def test_frozen_and_described():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE)
    mechanism = mechanism.with_facts(stages=(("a", 1.0), ("b", 2.0)))
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


class Tagged(np.ndarray):
    """A subclass whose views share memory."""


def memory_map(array, folder):
    path = folder / "weights.bin"
    mapped = np.memmap(path, dtype=array.dtype, shape=array.shape, mode="w+")
    mapped[:] = array
    return mapped


@pytest.mark.parametrize("how", ["own", "view", "read-only view", "subclass", "memmap", "column"])
def test_caller_cannot_change_the_weights_afterwards(how, tmp_path):
    base = Mechanism.from_matrix(PROBLEM, PRIVATE).weights.copy()
    given = {
        "own": lambda: base,
        "view": lambda: base[:],
        "read-only view": lambda: base[:],
        "subclass": lambda: base.view(Tagged),
        "memmap": lambda: memory_map(base, tmp_path),
        "column": lambda: np.asfortranarray(base),
    }[how]()
    if how == "read-only view":
        given.flags.writeable = False
    mechanism = Mechanism(PROBLEM, given, "by hand")
    before = mechanism.weights.copy()
    base[0] = [TOTAL, 0]
    if how != "read-only view":
        given[0] = [TOTAL, 0]
    np.testing.assert_array_equal(mechanism.weights, before)
    assert type(mechanism.weights) is np.ndarray
    assert audit_weights(DOMAIN, PROBLEM.outputs, mechanism.weights, 1.0).holds


def test_no_flag_opens_what_the_audit_rests_on():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE)
    problem = mechanism.problem
    arrays = (mechanism.weights, problem.loss, problem.prior, problem.domain.metric.vectors)
    for array in (*arrays, arrays[0][:1], arrays[0].T):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    with pytest.raises(AttributeError, match="cannot assign"):
        problem.domain.metric.vectors = np.zeros((3, 1))
    with pytest.raises(AttributeError, match="cannot assign"):
        problem.domain.metric.relative_error = 0.0


def test_a_mechanism_pickles_and_is_audited_on_the_way_in():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE, bound=0.0).with_details(rounds=3)
    for copy in (pickle.loads(pickle.dumps(mechanism)), copying.deepcopy(mechanism)):
        np.testing.assert_array_equal(copy.weights, mechanism.weights)
        assert copy.audit == mechanism.audit
        assert copy.details["rounds"] == 3
        assert copy.sample(1) in (0, 2)
        with pytest.raises(ValueError, match="WRITEABLE"):
            copy.problem.loss.flags.writeable = True
    data = pickle.dumps(mechanism)
    row = mechanism.weights[0].tobytes()
    assert data.count(row) == 1
    forged = data.replace(row, np.array([TOTAL, 0]).tobytes())
    with pytest.raises(PrivacyError, match="not 1-mDP"):
        pickle.loads(forged)


def test_many_records_get_a_draw_each():
    mechanism = exponential(displacement_problem(random_domain("haversine", 30), [4, 9, 28], 1.0))
    records = np.arange(30).repeat(40)
    drawn = mechanism.simulate(3).sample(records)
    assert drawn.shape == records.shape
    assert set(drawn.tolist()) == {4, 9, 28}
    assert mechanism.sample([1, 2]).shape == (2,)
    with pytest.raises(MethodError, match="one draw each"):
        mechanism.sample([1, 2], size=3)
    for wrong in ([1, 30], [0.5], ["a"]):
        with pytest.raises(MethodError, match="not an index") as caught:
            mechanism.sample(wrong)
        assert "30 " not in str(caught.value)


def test_errors_carry_neither_record_nor_seed():
    mechanism = Mechanism.from_matrix(PROBLEM, PRIVATE)
    secret = 987_654
    for call in (
        lambda: mechanism.sample(secret),
        lambda: mechanism.sample([0, secret]),
        lambda: mechanism.simulate(-secret),
        lambda: mechanism.problem.domain.distance(0, secret),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        trace, shown = caught.value.__traceback__, [str(caught.value)]
        while trace is not None:
            if trace.tb_frame.f_code.co_filename != __file__:
                shown.append(repr(trace.tb_frame.f_locals))
            trace = trace.tb_next
        assert str(secret) not in "".join(shown)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_outputs_need_not_be_records():
    domain = Domain.from_points([41.90, 41.91, 41.93], [12.49, 12.50, 12.52])
    zones = Outputs.labels(["north", "south"])
    mechanism = Mechanism.from_matrix(
        Problem(domain, zones, np.ones((3, 2)), 2.0), [[0.5, 0.5]] * 3
    )
    assert mechanism.sample(0) in ("north", "south")
    assert set(mechanism.sample(1, 50)) == {"north", "south"}
    places = Outputs.at([41.905, 41.92], [12.495, 12.51])
    loss = places.distances(domain)
    assert loss[1] == pytest.approx(
        Domain.from_points([41.91, 41.905, 41.92], [12.50, 12.495, 12.51]).distances([0], [1, 2])[0]
    )
    near = exponential(Problem(domain, places, loss, 2.0))
    assert near.sample(2) in (0, 1)
    with pytest.raises(ProblemError, match="no distance to the records"):
        exponential(mechanism.problem)


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
        assert list(inspect.signature(self.mechanism.sample).parameters) == ["records", "size"]

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


def test_a_refused_table_leaves_nothing_behind():
    mechanism = line_mechanism()
    honest = TOTAL * np.eye(5, dtype=np.int64)
    with pytest.raises(PrivacyError) as refused:
        Mechanism(mechanism.problem, honest, "honest")
    frame = refused.value.__traceback__
    while frame is not None:
        left = frame.tb_frame.f_locals.get("self")
        assert not (isinstance(left, Mechanism) and vars(left))
        frame = frame.tb_next
    # A second call of the constructor judges the object again.
    with pytest.raises(PrivacyError):
        mechanism.__init__(mechanism.problem, honest, "honest")
    with pytest.raises(MethodError, match="the draw failed"):
        mechanism.sample(0)


def line_mechanism() -> Mechanism:
    domain = Domain.from_vectors(np.linspace(0, 1, 5)[:, None])
    return exponential(Problem(domain, np.arange(5), domain.distances(), 2.0))
