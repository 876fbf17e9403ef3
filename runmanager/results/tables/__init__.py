"""The results table: its rows, queries and filters, and the formats that it is written in."""
