"""Tables with integer weights, and their bytes."""
