"""What a table means for the people behind it: attackers, leakage, words, the choice of epsilon."""
