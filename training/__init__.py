"""Training: from rollout trees to credit, from credit to weights; one file a stage, `loop.py` in one page."""
