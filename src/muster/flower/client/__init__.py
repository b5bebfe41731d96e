"""The client app, its node and the processes that run it."""
