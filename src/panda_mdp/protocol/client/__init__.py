"""A user's side: checks what a server offers, draws on the device, charges, then sends."""
