"""How users select anchors: independent coins, or a ball around a private centre."""
