"""Messages, the proxy in front of the SuperLink, keys and signatures."""
