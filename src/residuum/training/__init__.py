"""The one training loop: seeded, checkpointed, resumed to the last bit, in one process or several."""
