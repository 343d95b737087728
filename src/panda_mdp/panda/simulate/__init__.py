"""Users over time, in simulations: joining, leaving, manipulating, moving."""
