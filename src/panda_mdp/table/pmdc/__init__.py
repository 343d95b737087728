"""Tables of whole cities in a few MB, still audited over all pairs on the integers sampled from."""
