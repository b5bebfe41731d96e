"""The papers' theory, made runnable: each statement is a function whose claim can be checked."""
