"""The papers' theory as code: each statement is a function whose claim can be checked."""
