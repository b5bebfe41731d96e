"""Privacy of clients: differential privacy and secure sums."""
