"""A second objective among the tables of nearly least loss: what an attacker gains from them."""
