"""Pictures of cities, mechanisms and what they cost.

Every `draw_...` returns a matplotlib figure, which `save_figure` writes; `write_map` writes an
interactive map as one HTML file that needs nothing else.
"""

from panda_mdp.plot.charts import draw_calibration, draw_losses
from panda_mdp.plot.estimates import draw_density, draw_flows, draw_lengths, draw_shares
from panda_mdp.plot.html import write_map
from panda_mdp.plot.maps import (
    draw_anchors,
    draw_attacker_error,
    draw_city,
    draw_expected_loss,
    draw_local_epsilon,
    draw_record,
    draw_side_by_side,
)
from panda_mdp.plot.style import save_figure

__all__ = [
    "draw_anchors",
    "draw_attacker_error",
    "draw_calibration",
    "draw_city",
    "draw_density",
    "draw_expected_loss",
    "draw_flows",
    "draw_lengths",
    "draw_local_epsilon",
    "draw_losses",
    "draw_record",
    "draw_shares",
    "draw_side_by_side",
    "save_figure",
    "write_map",
]
