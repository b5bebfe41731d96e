"""Tables, figures and HTML reports of results, with paired intervals."""
