"""The results and epochs tables: rows, queries, and rendering as text, DataFrame or terminal output."""
