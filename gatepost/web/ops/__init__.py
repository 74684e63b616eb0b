"""The operations plane: health, metrics and the interface's description, on a listener of its own."""
