"""Files and folders: their names, writing them so that a kill loses nothing, and what is wrong with them."""
