"""Which machine solves: the CPU's cores (numba) or accelerators (JAX)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import threads_lost
from panda_mdp.compute.backend import Backend, accelerator, has_numba
from panda_mdp.compute.closure import Closure, closure_of
from panda_mdp.errors import MethodError, MissingDependencyError
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import GraphSolver
from panda_mdp.methods.optimal.program import TILING, Tiling, TilingTuning, tiling_for
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.problem import Problem

if TYPE_CHECKING:
    from jax.sharding import Mesh


class Engine(ABC):
    """Makes the solver and the closure of one machine."""

    name: str
    audit: Backend | None = None
    """What computes the audits of this machine's tables; the default one where None."""
    extends_always: bool = False
    """Whether looking for pairs costs little beside iterating: then the graph is extended at every
    check, and not only where the bound has slowed down."""

    def __init__(self, tiling: TilingTuning = TILING) -> None:
        self.tiling = tiling

    def closure(self, problem: Problem) -> Closure:
        """What closes tables of the problem over all pairs."""
        return closure_of(problem.domain)

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> GraphSolver:
        """What iterates on the problem, from a table or a start of its own."""
        host = self.name == "cpu"
        if host or problem.domain.metric.generating_pairs is None:
            tiling = tiling_for(problem, graph, self.tiling, host=host)
        else:
            # Tables under path metrics are closed on the host, as a whole.
            tiling = Tiling.whole(problem)
        if start is None and tiling.one:
            start = warm_start(problem, graph)
        return self._iterates(problem, graph, start, tiling=tiling, tuning=self.tiling)

    @property
    @abstractmethod
    def _iterates(self) -> Callable[..., GraphSolver]:
        """What iterates on tiles of a problem on this machine."""

    def note(self) -> str:
        """What will take its time before the first iteration; empty where nothing does."""
        return ""

    @property
    def agree(self) -> Callable[[bool], bool] | None:
        """Makes a decision by the clock the same for all processes that solve together; None where
        this one solves alone."""
        return None


class CpuEngine(Engine):
    """All cores of this machine, compiled by numba."""

    name = "cpu"
    extends_always = True

    def __init__(self, tiling: TilingTuning = TILING) -> None:
        super().__init__(tiling)
        if not has_numba():
            raise MissingDependencyError(
                "optimal needs numba on the CPU: pip install numba, or use backend='jax'"
            )
        if threads_lost():
            raise MethodError(
                "this process was forked from one whose compiled threads were running, and cannot "
                "use them; start it with multiprocessing's 'spawn' or 'forkserver'"
            )

    def note(self) -> str:
        from panda_mdp.compute.numba import on_disk
        from panda_mdp.compute.numba.pdhg import run

        return "" if on_disk(run) else "compiling once, about 10 s"

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        from panda_mdp.methods.optimal.cpu_solver import CpuSolver

        return CpuSolver


class JaxEngine(Engine):
    """The devices that JAX sees, or those given; outputs of dense tables are split over them."""

    name = "jax"
    audit = "jax"

    def __init__(self, devices: Sequence[Any] | None = None, tiling: TilingTuning = TILING) -> None:
        super().__init__(tiling)
        try:
            from panda_mdp.compute.jax.device import waking_mesh
        except ImportError as error:
            raise MissingDependencyError(
                "backend='jax' needs JAX: pip install 'panda-mdp[gpu]', or pip install jax"
            ) from error
        self._mesh = waking_mesh(devices)

    @property
    def mesh(self) -> Mesh:
        """The devices in a row; they wake up while the host builds the graph."""
        return self._mesh()

    def closure(self, problem: Problem) -> Closure:
        from panda_mdp.compute.jax.closure import closure_for

        if problem.domain.metric.generating_pairs is not None:
            # Along edges the host closes in less time than tables take to travel.
            return super().closure(problem)
        return closure_for(problem.domain, self.mesh, problem.outputs_count)

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        from panda_mdp.methods.optimal.jax_solver import JaxSolver

        return partial(JaxSolver, mesh=self.mesh)

    def note(self) -> str:
        from panda_mdp.compute.jax.device import compiled_before

        return "" if compiled_before() else "compiling once, about 20 s"

    @property
    def agree(self) -> Callable[[bool], bool] | None:
        import jax

        from panda_mdp.compute.jax.device import any_process

        return any_process if jax.process_count() > 1 else None


Machine: TypeAlias = Literal["auto", "cpu", "jax"] | Engine
"""What solves: the name of an engine, or one, such as `JaxEngine(devices)`."""


def choose(machine: Machine) -> Engine:
    """The engine of a name; "auto" takes an accelerator where JAX sees one, else the CPU."""
    if isinstance(machine, Engine):
        return machine
    if machine not in ("auto", "cpu", "jax"):
        raise MethodError(
            f"backend is {machine!r}; it must be 'auto', 'cpu', 'jax' or an engine such as "
            "JaxEngine(devices); solve_lp hands the LP to HiGHS"
        )
    if machine == "jax" or (machine == "auto" and accelerator()):
        return JaxEngine()
    return CpuEngine()
