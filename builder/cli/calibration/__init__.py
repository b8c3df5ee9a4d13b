"""What a model is calibrated with, as commands take it. Of builder, the command line alone turns text into tokens."""
