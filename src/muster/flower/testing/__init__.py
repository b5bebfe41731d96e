"""An in-process grid and fault injection for tests."""
