"""From records to answers: tables, comparisons, figures and reports. Computes on records; never imports torch."""
