"""Tables, their columns and rows, and values formatted for people."""
