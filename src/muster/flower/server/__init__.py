"""The server app and what it keeps of its clients."""
