"""Who gets which rows."""
