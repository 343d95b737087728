"""The audit against 50-digit brute force, with and without the compiled kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from helpers import (
    KINDS,
    displacement_problem,
    domains,
    exact_distance,
    exact_epsilon,
    is_private,
    random_domain,
    weight_tables,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from panda_mdp import Audit, Domain, Mechanism, NoGuarantee, Problem, audit, exponential
from panda_mdp.compute.pairs import ARITHMETIC_ERROR, LOG_ERROR
from panda_mdp.errors import PrivacyError, ProblemError
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.space.metrics import EARTH_RADIUS_KM, SUM_TERMS, Euclidean, Haversine
from panda_mdp.space.tiles import TILE

BOTH = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def pair_table(a: int, b: int) -> np.ndarray:
    """Two records, two outputs; the first output has weights a and b."""
    return np.array([[a, TOTAL - a], [b, TOTAL - b]], dtype=np.int64)


def nats(result: Audit) -> float:
    return result.epsilon * result.distance


@BOTH
@given(domains(largest=6), st.data())
def test_matches_brute_force(backend, domain, data):
    weights = data.draw(weight_tables(domain.size))
    outputs = np.arange(weights.shape[1]) % domain.size
    result = audit_weights(domain, outputs, weights, 1.0, backend)
    exact = exact_epsilon(domain, weights)
    assert result.pairs == domain.size * (domain.size - 1) // 2
    if exact == mp.inf:
        assert result.epsilon == np.inf
        assert not result.holds
        return
    # An upper bound on the exact value, by less than 1e-12 nats at the pair that attains it.
    assert mp.mpf(result.epsilon) >= exact
    if exact == 0:
        assert result.epsilon == 0.0
        assert result.holds
        return
    x, x2, y = result.worst
    column = int(np.flatnonzero(outputs == y)[0]) if len(set(outputs)) == len(outputs) else None
    apart = exact_distance(domain, x, x2)
    assert (mp.mpf(result.epsilon) - exact) * apart < 1e-12
    if column is not None:
        with mp.workdps(50):
            attained = mp.log(mp.mpf(int(weights[x, column])) / int(weights[x2, column])) / apart
        assert (mp.mpf(result.epsilon) - attained) * apart < 1e-12


@BOTH
@given(domains(largest=5), st.data())
def test_verdict_matches_brute_force(backend, domain, data):
    """`holds` agrees with the definition at an epsilon around the exact one."""
    weights = data.draw(weight_tables(domain.size, zeros=False))
    exact = float(exact_epsilon(domain, weights))
    if exact == 0:
        return
    factor = data.draw(st.sampled_from([0.5, 1 - 1e-9, 1 + 1e-9, 2.0]))
    outputs = np.arange(weights.shape[1])
    shortest = min(
        float(exact_distance(domain, i, j)) for i in range(domain.size) for j in range(i)
    )
    if abs(factor - 1) * exact * shortest < 2e-12:
        return
    result = audit_weights(domain, outputs, weights, exact * factor, backend)
    assert result.holds == is_private(domain, weights, exact * factor) == (factor > 1)


def limit_cases(count: int, seed: int):
    """Pairs of records and weights whose ratio is exp(epsilon d) (1 + offset)."""
    rng = np.random.default_rng(seed)
    offsets = [-1e-9, -1e-11, -2e-12, -1e-12, -3e-13, -1e-13, -1e-14, 0.0, 1e-16, 1e-15, 1e-14]
    offsets += [1e-13, 1e-12, 1e-9]
    for k in range(count):
        kind = ("haversine", "euclidean", "matrix")[k % 3]
        scale = 10.0 ** rng.uniform(-6, 3)
        if kind == "haversine":
            lat, lon = rng.uniform(-80, 80), rng.uniform(-179, 179)
            step = rng.normal(size=2) * scale / 100
            domain = Domain.from_points(
                [lat, np.clip(lat + step[0], -89, 89)], [lon, np.clip(lon + step[1], -180, 179)]
            )
        elif kind == "euclidean":
            domain = Domain.from_vectors(rng.normal(size=(2, rng.integers(1, 80))) * scale)
        else:
            domain = Domain.from_matrix([[0.0, scale], [scale, 0.0]])
        # Small and large epsilon d; a ratio of weights cannot exceed 2^62, 43 nats.
        target = 10.0 ** rng.uniform(-12, np.log10(36.0))
        epsilon = float(target / domain.distance(0, 1))
        with mp.workdps(50):
            limit = mp.exp(mp.mpf(epsilon) * exact_distance(domain, 0, 1))
            top = TOTAL / 8 * (1 + rng.random())
            low = int(mp.floor(top / limit))
            high = int(mp.floor(low * limit * (1 + mp.mpf(offsets[k % len(offsets)]))))
        if low < 1 or high < low:
            continue
        yield domain, epsilon, pair_table(high, low) if k % 2 else pair_table(low, high)


def test_directed_rounding_near_the_limit(backend):
    """Holds for every ratio up to exp(epsilon d) (1 - 1e-12), never above exp(epsilon d)."""
    verdicts = {"inside": 0, "outside": 0, "between": 0}
    for domain, epsilon, weights in limit_cases(1500, seed=11):
        rows = [[int(w) for w in row] for row in weights]
        with mp.workdps(50):
            limit = mp.exp(mp.mpf(epsilon) * exact_distance(domain, 0, 1))
            ratio = max(max(mp.mpf(a) / b, mp.mpf(b) / a) for a, b in zip(*rows, strict=True))
            beyond = ratio > limit
            inside = ratio <= limit * (1 - mp.mpf("1e-12"))
        result = audit_weights(domain, np.array([0, 1]), weights, epsilon, backend)
        if beyond:
            assert not result.holds
        if inside:
            assert result.holds
        verdicts["outside" if beyond else "inside" if inside else "between"] += 1
    assert min(verdicts.values()) > 100


def test_the_error_budget_leaves_room():
    """The worst case of docs/audit.md stays below 1e-12 nats for every metric."""
    largest = float(mp.log(TOTAL))
    for kind in KINDS:
        metric = random_domain(kind, 5).metric
        assert metric.relative_error <= 5e-15
        slack = LOG_ERROR + 7e-14 + largest * (2 * metric.relative_error + 2 * ARITHMETIC_ERROR)
        assert slack < 1e-12


def test_a_logarithm_errs_by_less_than_the_budget():
    """NumPy's float64 log on weights of all sizes, in units in the last place."""
    rng = np.random.default_rng(0)
    values = np.unique((2.0 ** rng.uniform(0, 62, 4000)).astype(np.int64))
    logs = np.log(values.astype(np.float64))
    with mp.workdps(50):
        exact = [mp.log(mp.mpf(int(v))) for v in values]
    worst = max(float(abs(mp.mpf(float(a)) - b)) for a, b in zip(logs, exact, strict=True))
    assert worst <= 4 * np.spacing(43.0)
    assert 2 * worst + 2 * np.spacing(43.0) < LOG_ERROR


class TestLimit:
    """The matrix of the acceptance test: 1e-12 inside the limit, then one entry 1e-9 beyond."""

    domain = Domain.from_vectors([[0.0], [0.7], [1.9], [3.0]])
    outputs = np.array([0, 3])
    epsilon = 0.8

    def table(self) -> np.ndarray:
        # One column decays by exp(-epsilon d) less 1e-12 from record to record; the other
        # column takes the rest, whose ratios are far from the limit.
        column = [0.25]
        for d in (0.7, 1.2, 1.1):
            column.append(column[-1] * np.exp(-self.epsilon * d) / (1 - 1e-12))
        first = np.array(column)
        return np.stack([first, 1 - first], axis=1)

    def test_inside_passes(self, backend):
        problem = Problem(self.domain, self.outputs, np.zeros((4, 2)), self.epsilon)
        mechanism = Mechanism.from_matrix(problem, self.table())
        assert mechanism.audit.holds
        assert self.epsilon - mechanism.audit.epsilon < 1e-11
        assert is_private(self.domain, mechanism.weights, self.epsilon)

    @pytest.mark.parametrize("record", [0, 1, 2, 3])
    def test_one_entry_beyond_fails(self, backend, record):
        matrix = self.table()
        factor = 1 + 1e-9 if record == 0 else 1 - 1e-9
        matrix[record, 0] *= factor
        matrix[record, 1] = 1 - matrix[record, 0]
        problem = Problem(self.domain, self.outputs, np.zeros((4, 2)), self.epsilon)
        table = NoGuarantee.from_matrix(problem, matrix)
        assert not is_private(self.domain, table.weights, self.epsilon)
        assert not table.audit.holds
        with pytest.raises(PrivacyError, match=r"not 0\.8-mDP"):
            Mechanism.from_matrix(problem, matrix)


def test_zero_against_positive_is_infinite(backend):
    domain = random_domain("euclidean", 4)
    weights = quantise(np.full((4, 3), 1 / 3))
    weights[2] = [0, TOTAL // 2, TOTAL // 2]
    result = audit_weights(domain, np.array([3, 1, 0]), weights, 1e9, backend)
    assert result.epsilon == np.inf
    assert not result.holds
    assert result.worst == (0, 2, 3)
    assert "inf" in repr(result)


def test_column_of_zeros_is_allowed(backend):
    domain = random_domain("euclidean", 4)
    weights = quantise(np.array([[0.4, 0.0, 0.6], [0.5, 0.0, 0.5], [0.5, 0, 0.5], [0.5, 0, 0.5]]))
    result = audit_weights(domain, np.array([0, 1, 2]), weights, 100.0, backend)
    assert result.holds
    assert float(exact_epsilon(domain, weights)) == pytest.approx(result.epsilon, rel=1e-11)
    assert result.worst[2] != 1


def test_equal_rows_hold_at_any_epsilon(backend):
    domain = Domain.from_points([41.9, 41.9 + 1e-13, 42.0], [12.4, 12.4, 12.4])
    weights = np.tile(quantise(np.array([[0.1, 0.2, 0.7]])), (3, 1))
    result = audit_weights(domain, np.array([0, 1, 2]), weights, 1e-300, backend)
    assert result.holds
    assert result.epsilon == 0.0
    weights[2, 0] += 1
    weights[2, 1] -= 1
    assert not audit_weights(domain, np.array([0, 1, 2]), weights, 1e-300).holds


def test_one_unit_of_weight_is_noticed(backend):
    """A difference that float64 logarithms cannot see counts as up to the error bound."""
    domain = Domain.from_vectors([[0.0], [1.0]])
    weights = pair_table(TOTAL // 2, TOTAL // 2 + 1)
    assert np.log(weights[0, 0]) == np.log(weights[1, 0])
    result = audit_weights(domain, np.array([0, 1]), weights, 1.0, backend)
    assert 0 < result.epsilon < 1e-12
    assert not audit_weights(domain, np.array([0, 1]), weights, 1e-20).holds
    assert result.worst[0] != result.worst[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["decaying", "random", "few rows"])
def test_backends_agree_over_many_tiles(kind, shape):
    domain = random_domain(kind, 400, seed=6)
    rng = np.random.default_rng(1)
    outputs = np.arange(0, 400, 40)
    if shape == "decaying":
        matrix = np.exp(-0.5 * domain.distances(None, outputs))
    elif shape == "random":
        matrix = rng.random((400, 10)) + 0.05
    else:
        matrix = (rng.random((3, 10)) + 0.1)[rng.integers(0, 3, 400)]
    weights = quantise(matrix / matrix.sum(axis=1, keepdims=True))
    compiled = audit_weights(domain, outputs, weights, 1.0, "numba")
    plain = audit_weights(domain, outputs, weights, 1.0, "numpy")
    assert plain.epsilon == pytest.approx(compiled.epsilon, rel=1e-13)
    assert plain.holds == compiled.holds
    assert set(plain.worst[:2]) == set(compiled.worst[:2])
    logs = np.log(weights.astype(float))
    gaps = np.abs(logs[:, None] - logs).max(axis=2)
    apart = domain.distances() + np.diag(np.full(400, np.inf))
    assert compiled.epsilon == pytest.approx((gaps / apart).max(), rel=1e-10)


@pytest.mark.parametrize("backend", ["jax", "numba", "numpy"])
def test_every_backend_gives_the_same_answer(backend):
    pytest.importorskip(backend)
    domain = random_domain("haversine", 400, seed=6)
    outputs = np.arange(0, 400, 40)
    matrix = np.exp(-0.5 * domain.distances(None, outputs))
    weights = quantise(matrix / matrix.sum(axis=1, keepdims=True))
    expected = audit_weights(domain, outputs, weights, 1.0)
    chosen = audit_weights(domain, outputs, weights, 1.0, backend)
    assert chosen.epsilon == pytest.approx(expected.epsilon, rel=1e-13)
    assert set(chosen.worst[:2]) == set(expected.worst[:2])


def test_own_epsilon_or_another():
    mechanism = exponential(displacement_problem(random_domain("haversine", 40), [0, 20], 2.0))
    own = audit(mechanism)
    assert own.holds
    assert own == mechanism.audit
    assert own.claimed == 2.0
    half = audit(mechanism, epsilon=own.epsilon * 0.9)
    assert not half.holds
    assert half.epsilon == own.epsilon
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(ProblemError, match="must be positive"):
            audit(mechanism, epsilon=wrong)


def test_repr_is_one_line_with_the_worst_pair():
    domain = Domain.from_vectors([[0.0], [2.0]], unit="m")
    weights = quantise(np.array([[0.5, 0.5], [0.25, 0.75]]))
    result = audit_weights(domain, np.array([1, 0]), weights, 0.1)
    assert repr(result) == (
        "Audit(DOES NOT HOLD: epsilon 0.34657359 of 0.1 per m; "
        "worst: records 0 and 1, 2 m apart, output 1; all 1 pairs)"
    )


LARGE = """
import sys
import numpy as np
import panda_mdp as pm
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise

size, count = map(int, sys.argv[1:3])
backend = "numpy" if "numpy" in sys.argv else None
rng = np.random.default_rng(0)
domain = pm.Domain.from_points(41.7 + 0.4 * rng.random(size), 12.2 + 0.5 * rng.random(size))
outputs = np.arange(count)
matrix = np.exp(-2.5 * domain.distances(None, outputs))
matrix = (1 - 1e-6) * matrix / matrix.sum(axis=1, keepdims=True) + 1e-6 / count
weights = quantise(matrix)
part = np.arange(300)
audit_weights(domain.take(part), outputs[:2], quantise(np.full((300, 2), 0.5)), 1.0)  # compiles
assert audit_weights(domain, outputs, weights, 5.0, backend).holds
weights[:] = weights[0]
assert audit_weights(domain, outputs, weights, 1e-9, backend).holds
# Not ru_maxrss, which a process inherits from the one that started it.
peak_kb = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
print(peak_kb / 1024)
"""


@pytest.mark.parametrize("args", [("5000", "100", "compiled"), ("5000", "100", "numpy")])
def test_memory_of_5000_records(args):
    """Two audits, of decaying rows and of equal ones (where nothing can be passed over)."""
    done = subprocess.run(
        [sys.executable, "-c", LARGE, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1024


def test_fallback_memory_does_not_grow_with_outputs_squared():
    done = subprocess.run(
        [sys.executable, "-c", LARGE, "2000", "2000", "numpy"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 600


def test_the_document_states_the_constants_in_use():
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    assert f"`LOG_ERROR` = {LOG_ERROR:g}".replace("e-0", "e-") in text
    assert f"`ARITHMETIC_ERROR` = {ARITHMETIC_ERROR:g}" in text
    assert f"| haversine | {Haversine.relative_error:g} |" in text
    assert f"radius {EARTH_RADIUS_KM} km" in text
    assert f"tiles of at most {TILE}" in text
    for count in (3, SUM_TERMS, 500):
        stated = (min(count, 32) / 2 + 6) * 2.0**-53
        assert Euclidean(np.zeros((2, count))).relative_error == stated
