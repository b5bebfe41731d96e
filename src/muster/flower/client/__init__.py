"""The client app, its state and data, and the node processes that run it."""
