"""Topics that other processes of the broker serve."""
