"""Pages that a command serves: sockets, addresses, access over ssh, temporary folders."""
