"""An `attribute` call, understood: players, baselines, targets."""
