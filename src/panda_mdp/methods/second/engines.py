"""Machines whose solvers a second objective can go on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from panda_mdp.methods.optimal.halpern import GraphSolver
from panda_mdp.methods.optimal.optimal import CpuEngine, Engine, JaxEngine
from panda_mdp.methods.second.first_order import CpuTradeOff


def engine_with(engine: Engine, tiles: bool = True) -> Engine:
    """The same machine with a solver that a second objective can go on with."""
    if isinstance(engine, JaxEngine):
        return TradeOffJax(engine.mesh.local_devices[:1], engine.tiling)
    # Losses outside of tables that are closed as a whole are worked out anew at every look.
    least = engine.tiling.least_outputs if tiles else 1 << 62
    return TradeOffCpu(replace(engine.tiling, least_outputs=least, host_outputs=least))


class TradeOffCpu(CpuEngine):
    """The cores of this machine."""

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        return CpuTradeOff


class TradeOffJax(JaxEngine):
    """One accelerator."""

    @property
    def _iterates(self) -> Callable[..., GraphSolver]:
        from panda_mdp.methods.second.jax_trade_off import JaxTradeOff

        return partial(JaxTradeOff, mesh=self.mesh)
