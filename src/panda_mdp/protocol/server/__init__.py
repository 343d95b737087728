"""The operator's side: routes over a store, and the work behind them."""
