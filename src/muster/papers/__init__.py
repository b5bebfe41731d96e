"""Reproductions of the two papers: experiments and claims, theory, and the trust study."""
