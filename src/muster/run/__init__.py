"""Running a job: one round, the training loop, evaluation, checkpoints, progress."""
