"""Messages, the reverse proxy in front of the SuperLink, TLS certificates, keys and signatures."""
