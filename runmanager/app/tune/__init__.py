"""Tuning: settings that change nothing but speed race against each other, in turns on this machine."""
