"""Traces in: positions of people, streamed from the files in which they are published."""

from panda_mdp.city.traces.reader import Fixes, TraceReport, Traces, load_traces
from panda_mdp.city.traces.visits import Trajectory, Visits, count_visits, trajectories

__all__ = [
    "Fixes",
    "TraceReport",
    "Traces",
    "Trajectory",
    "Visits",
    "count_visits",
    "load_traces",
    "trajectories",
]
