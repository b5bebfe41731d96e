"""Federations from your own files: tables, npz, images, Hugging Face."""
