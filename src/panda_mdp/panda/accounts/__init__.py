"""What the phases cost: leakage, quantiles, coverage, budgets, certificates, violations."""
