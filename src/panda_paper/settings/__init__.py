"""What is run, as data: settings, cells, items, and what the paper reports for them."""
