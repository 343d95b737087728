"""The linear program over the full domain, solved to a certified gap."""
