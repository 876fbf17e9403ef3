"""Every speed and truth figure that the documents quote: each module measures and writes its own."""
