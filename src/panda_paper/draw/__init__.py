"""Drawing: results as series, and one picture for each of the paper's figures."""
