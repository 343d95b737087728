"""Cities out: the formats that `City.save` writes."""
