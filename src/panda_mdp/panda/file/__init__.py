"""Files of PAnDA: both phases, written whole and verified when they are read."""
