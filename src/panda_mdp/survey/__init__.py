"""Every method on one problem, side by side: the table of methods, and runs that are measured."""
