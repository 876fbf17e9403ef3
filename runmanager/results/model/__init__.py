"""What every part of the results speaks: tables, their columns, and values formatted for people."""
