"""The linear program by Benders decomposition."""
