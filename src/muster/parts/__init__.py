"""The parts of a method."""
