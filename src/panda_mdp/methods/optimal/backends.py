"""Which machine solves: the CPU's cores (numba) or accelerators (JAX)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.forks import threads_lost
from panda_mdp.compute.backend import Backend, accelerator, default_backend
from panda_mdp.compute.closure import Closure
from panda_mdp.errors import MethodError, MissingDependencyError
from panda_mdp.methods.optimal import lifted
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import Halpern
from panda_mdp.methods.optimal.lifted import Lifted, localised
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.problem import Problem

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from panda_mdp.methods.optimal.lifted_finish import LiftedFinish


class Engine(ABC):
    """Makes the solver and the closure of one machine."""

    name: str
    audit: Backend
    """What computes the audits of this machine's tables."""
    compiles: bool = False
    """Whether what runs for the first time is compiled meanwhile, in every process anew."""
    extends_always: bool = False
    """Whether looking for pairs costs little beside iterating: then the graph is extended at every
    check, and not only where the bound has slowed down."""

    @abstractmethod
    def closure(self, problem: Problem) -> Closure:
        """What closes tables of the problem over all pairs."""

    @abstractmethod
    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> Halpern | Lifted:
        """What iterates on the problem, from a table or a start of its own."""

    def finish(self, problem: Problem, solver: Halpern | Lifted) -> LiftedFinish | None:
        """What makes sparse tables of a lifted solver's, with numba; None where there is none, or
        tables are dense."""
        if not isinstance(solver, Lifted) or default_backend() != "numba":
            return None
        if problem.outputs_count < lifted.LEAST_OUTPUTS:
            return None
        from panda_mdp.methods.optimal.lifted_finish import LiftedFinish

        return LiftedFinish(problem, "numba")

    def note(self) -> str:
        """What will take its time before the first iteration; empty where nothing does."""
        return ""

    def agree(self, decision: bool) -> bool:
        """A decision by the clock, made the same for all processes that solve together."""
        return decision


class CpuEngine(Engine):
    """All cores of this machine, compiled by numba."""

    name = "cpu"
    audit = "numba"
    extends_always = True

    def __init__(self) -> None:
        try:
            import numba  # noqa: F401
        except ImportError as error:
            msg = "optimal needs numba on the CPU: pip install numba, or use backend='jax'"
            raise MissingDependencyError(msg) from error

        if threads_lost():
            msg = (
                "this process was forked from one whose compiled threads were running, and cannot "
                "use them; start it with multiprocessing's 'spawn' or 'forkserver'"
            )
            raise MethodError(msg)

    def note(self) -> str:
        from panda_mdp.compute.numba.compiling import on_disk
        from panda_mdp.compute.numba.pdhg import run

        return "" if on_disk(run) else "compiling once, about 10 s"

    def closure(self, problem: Problem) -> Closure:
        return Closure(problem.domain)

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> Halpern | Lifted:
        from panda_mdp.methods.optimal.cpu_solver import READ_MULTIPLIERS, CpuSolver
        from panda_mdp.methods.optimal.host_lifted import HostLifted

        # Multipliers of tiles are no proof of a bound: graphs that may give one stay whole.
        unread = 2 * graph.count * problem.outputs_count > READ_MULTIPLIERS
        reached = localised(problem, graph, unread, lifted.HOST_NATS)
        if reached is None:
            return CpuSolver(problem, graph, warm_start(problem, graph) if start is None else start)
        return HostLifted(problem, graph, start, reached)

    def finish(self, problem: Problem, solver: Halpern | Lifted) -> LiftedFinish | None:
        from panda_mdp.methods.optimal.host_lifted import HostLifted

        if not isinstance(solver, HostLifted) or problem.outputs_count < lifted.LEAST_OUTPUTS:
            return None
        return solver.finish


class JaxEngine(Engine):
    """The devices that JAX sees, or those given; outputs are split over them."""

    name = "jax"
    audit = "jax"
    compiles = True

    def __init__(self, devices: Sequence[Any] | None = None) -> None:
        try:
            from panda_mdp.compute.jax.device import waking_mesh
        except ImportError as error:
            msg = "backend='jax' needs JAX: pip install 'panda-mdp[gpu]', or pip install jax"
            raise MissingDependencyError(msg) from error
        self._mesh = waking_mesh(devices)

    @property
    def mesh(self) -> Mesh:
        """The devices in a row; they wake up while the host builds the graph."""
        return self._mesh()

    def closure(self, problem: Problem) -> Closure:
        from panda_mdp.compute.jax.closure import closure_for

        return closure_for(problem.domain, self.mesh, problem.outputs_count)

    def solver(self, problem: Problem, graph: Graph, start: FloatArray | None) -> Halpern | Lifted:
        from panda_mdp.methods.optimal.jax_solver import JaxSolver
        from panda_mdp.methods.optimal.lifted_solver import DeviceLifted, fits

        reached = localised(problem, graph)
        if reached is None:
            first = warm_start(problem, graph) if start is None else start
            return JaxSolver(problem, graph, first, self.mesh)
        if fits(problem, self.mesh):
            return DeviceLifted(problem, graph, start, reached, self.mesh)

        def make(part: Problem, graph: Graph, start: FloatArray, owner: IntArray) -> JaxSolver:
            return JaxSolver(part, graph, start, self.mesh, owner)

        return Lifted(problem, graph, start, reached, make)

    def finish(self, problem: Problem, solver: Halpern | Lifted) -> LiftedFinish | None:
        from panda_mdp.compute.jax.device import measures

        if not isinstance(solver, Lifted) or not measures(problem.domain.metric):
            return super().finish(problem, solver)
        from panda_mdp.methods.optimal.lifted_device import DeviceFinish

        return DeviceFinish(problem, self.mesh)

    def note(self) -> str:
        from panda_mdp.compute.jax.device import compiled_before

        return "" if compiled_before() else "compiling once, about 20 s"

    def agree(self, decision: bool) -> bool:
        from panda_mdp.compute.jax.device import any_process

        return any_process(decision, self.mesh)


def choose(backend: Literal["auto", "cpu", "jax"], devices: Sequence[Any] | None) -> Engine:
    """The engine of a name; "auto" takes an accelerator where JAX sees one, else the CPU."""
    if backend == "cpu":
        return CpuEngine()
    if backend == "jax" or devices is not None or accelerator():
        return JaxEngine(devices)
    return CpuEngine()
